#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of one folder. If tests/NAME has a requirements.txt, they run in an environment of their own,
# build/suites/NAME, that holds these packages and this package; otherwise in .venv. Debian packages that the folder's
# debian-packages.txt lists are installed first.
#
#   tools/suite.sh NAME [ARGUMENTS OF PYTEST]
#   tools/suite.sh --python NAME      prepares the environment and prints the path of its Python
set -euo pipefail
cd "$(dirname "$0")/.."

only_prepare=
[[ ${1:-} == --python ]] && { only_prepare=yes; shift; }
name=${1:-}
[[ -n $name && -d tests/$name ]] || { echo "suite: there is no folder tests/$name" >&2; exit 2; }
python=.venv/bin/python
requirements=tests/$name/requirements.txt
[[ -f tests/$name/debian-packages.txt ]] && tools/setup.sh packages "tests/$name/debian-packages.txt" >&2
if [[ -f $requirements ]]; then
  environment=build/suites/$name
  want=$(cat "$requirements" build/stamps/package | sha256sum)
  if [[ $(cat "$environment/stamp" 2> /dev/null) != "$want" ]]; then
    [[ -x $environment/bin/python ]] || "${PYTHON:-python3}" -m venv "$environment"
    echo "suite: installing the packages of $requirements" >&2
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
    # One wheel serves all suites.
    wheel=build/suites/package
    if [[ $(cat "$wheel/stamp" 2> /dev/null) != "$(cat build/stamps/package)" ]]; then
      rm -rf "$wheel"
      $python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --no-index \
        --wheel-dir "$wheel" --config-settings=build-dir=build/release --config-settings=build.targets=wheel_files \
        --config-settings=cmake.build-type=RelWithDebInfo --config-settings=cmake.define.HVD_BUILD_TESTS=ON .
      cp build/stamps/package "$wheel/stamp"
    fi
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall \
      "$wheel"/*.whl
    echo "$want" > "$environment/stamp"
  fi
  python=$environment/bin/python
fi
[[ -z $only_prepare ]] || { echo "$python"; exit; }
exec "$python" -m pytest "tests/$name" "${@:2}"
