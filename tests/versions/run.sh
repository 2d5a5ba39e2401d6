#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs one wheel beside several releases of TensorFlow and runs tests/versions/smoke.py with each; nothing is
# compiled for any of them. The wheel is the one of the suites, environments are kept in build/versions.
#
#   tests/versions/run.sh [VERSION...]
set -euo pipefail
cd "$(dirname "$0")/../.."

program=versions
. tools/step.sh
versions=("${@:-}")
[[ -n ${versions[0]} ]] || versions=(2.13.1 2.16.2 2.18.1 2.21.0)
wheel=$(tools/suite.sh --wheel)
printf 'wheel: %s  %s\n' "$(basename "$wheel")" "$(sha256sum "$wheel" | cut -c1-16)"

for version in "${versions[@]}"; do
  environment=build/versions/tensorflow-$version
  if [[ ! -e $environment/ready ]]; then
    rm -rf "$environment"
    "${PYTHON:-python3}" -m venv "$environment"
    step "installing TensorFlow $version" \
      "$environment/bin/python" -m pip install --disable-pip-version-check "tensorflow-cpu==$version" cloudpickle
    touch "$environment/ready"
  fi
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall "$wheel"
  TF_CPP_MIN_LOG_LEVEL=2 "$environment/bin/horovodrun" -np 2 "$environment/bin/python" tests/versions/smoke.py
done
echo "the same wheel passed with TensorFlow ${versions[*]}"
