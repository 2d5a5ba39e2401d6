#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs one wheel beside several releases of a framework and runs a program of checks with each; nothing is compiled
# for any of them. The wheel is the one of the suites, environments are kept in build/versions.
#
#   tests/versions/run.sh [VERSION...]             of TensorFlow
#   tests/versions/run.sh torch|jax [VERSION...]   of PyTorch or JAX
set -euo pipefail
cd "$(dirname "$0")/../.."

program=versions
. tools/step.sh
framework=tensorflow
case ${1:-} in torch | jax) framework=$1; shift ;; esac
case $framework in
  tensorflow) package=tensorflow-cpu smoke=smoke.py versions=(2.13.1 2.16.2 2.18.1 2.21.0) ;;
  torch) package=torch smoke=smoke_torch.py versions=(2.13.0) ;;  # most others come with gigabytes for GPUs
  jax) package=jax smoke=smoke_jax.py versions=(0.4.38 0.5.3 0.8.0 0.10.2) ;;
esac
(($# == 0)) || versions=("$@")
others=(cloudpickle)
[[ $framework != jax ]] || others+=(optax)
wheel=$(tools/suite.sh --wheel)
printf 'wheel: %s  %s\n' "$(basename "$wheel")" "$(sha256sum "$wheel" | cut -c1-16)"

for version in "${versions[@]}"; do
  environment=build/versions/$framework-$version
  if [[ ! -e $environment/ready ]]; then
    rm -rf "$environment"
    "${PYTHON:-python3}" -m venv "$environment"
    step "installing $framework $version" \
      "$environment/bin/python" -m pip install --disable-pip-version-check "$package==$version" "${others[@]}"
    touch "$environment/ready"
  fi
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall "$wheel"
  TF_CPP_MIN_LOG_LEVEL=2 "$environment/bin/horovodrun" -np 2 "$environment/bin/python" "tests/versions/$smoke"
done
echo "the same wheel passed with $framework ${versions[*]}"
