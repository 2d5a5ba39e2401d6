#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of one folder. If tests/NAME has a requirements.txt, they run in an environment of their own,
# build/suites/NAME, that holds these packages and this package; otherwise in .venv. If that file is a link to the one
# of another folder, both share an environment. Debian packages that the folder's debian-packages.txt lists are
# installed first.
#
#   tools/suite.sh NAME [ARGUMENTS OF PYTEST]
#   tools/suite.sh --python NAME       prepares the environment and prints the path of its Python
#   tools/suite.sh --prepare NAME...   prepares environments
#   tools/suite.sh --wheel             makes the wheel that environments get and prints its path
#
# Several may run at the same time: what they share is made once, the others wait.
set -euo pipefail
cd "$(dirname "$0")/.."

# alone LOCK COMMAND...: runs a command while no other process runs one under the same lock. Standard output is kept for
# the answer, and nothing that the command starts inherits the lock.
alone() {
  mkdir -p build/suites
  (flock 9 && "${@:2}" >&2 9>&-) 9> "build/suites/$1.lock"
}

# One wheel serves all suites.
make_wheel() {
  local folder=build/suites/package
  [[ $(cat "$folder/stamp" 2> /dev/null) == "$(cat build/stamps/package)" ]] && return
  rm -rf "$folder"
  step "packing the package" .venv/bin/python -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps --no-index \
    --wheel-dir "$folder" --config-settings=build-dir=build/release --config-settings=build.targets=wheel_files \
    --config-settings=cmake.build-type=RelWithDebInfo --config-settings=cmake.define.HVD_BUILD_TESTS=ON .
  cp build/stamps/package "$folder/stamp"
}

# Brings an environment up to date. Other requirements make it anew, so that no package stays that is not required any
# more.
make_environment() {
  local environment=$1 requirements=$2 want
  local install=("$environment/bin/python" -m pip install --disable-pip-version-check)
  want=$(cat "$requirements" <("${PYTHON:-python3}" -V) | sha256sum)
  if [[ $(cat "$environment/requirements" 2> /dev/null) != "$want" ]]; then
    rm -rf "$environment"
    step "making $environment" "${PYTHON:-python3}" -m venv "$environment"
    step "installing the packages of $requirements" "${install[@]}" -r "$requirements"
    echo "$want" > "$environment/requirements"
  fi
  [[ $(cat "$environment/package" 2> /dev/null) == "$(cat build/stamps/package)" ]] && return
  alone package make_wheel
  step "installing the package into $environment" \
    "${install[@]}" --no-deps --no-index --force-reinstall build/suites/package/*.whl
  cp build/stamps/package "$environment/package"
}

# Prepares a suite and sets `python`.
prepare() {
  local name=$1 requirements=tests/$1/requirements.txt owner
  [[ -n $name && -d tests/$name ]] || { echo "suite: there is no folder tests/$name" >&2; exit 2; }
  program="suite $name"
  python=.venv/bin/python
  [[ ! -f tests/$name/debian-packages.txt ]] || alone debian tools/setup.sh packages "tests/$name/debian-packages.txt"
  [[ -f $requirements ]] || return 0
  owner=$(basename "$(dirname "$(realpath "$requirements")")")
  alone "$owner" make_environment "build/suites/$owner" "$requirements"
  python=build/suites/$owner/bin/python
}

program=suite
. tools/step.sh
case ${1:-} in
  --wheel)
    alone package make_wheel
    echo build/suites/package/*.whl
    ;;
  --python)
    prepare "${2:-}"
    echo "$python"
    ;;
  --prepare)
    for name in "${@:2}"; do prepare "$name"; done
    ;;
  *)
    prepare "${1:-}"
    exec "$python" -m pytest "tests/$1" --junitxml "build/times/$1.xml" "${@:2}"
    ;;
esac
