#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prepares everything that building and testing need. Each step leaves a stamp and is skipped while its inputs are unchanged,
# so a second run takes seconds and needs no network. A step that takes long prints what it does every few seconds.
#
#   tools/setup.sh                   packages, .venv, build, installed package
#   tools/setup.sh install           the same without tests and tools for developers: enough to use the package
#   tools/setup.sh wheel             what install does, and what `make wheel` needs besides
#   tools/setup.sh packages FILE...  only the Debian packages listed in the files
set -euo pipefail
cd "$(dirname "$0")/.."

program=setup
. tools/step.sh
# A stamp holds the hash of the inputs that made it.
stamp_of() { cat "build/stamps/$1" 2>/dev/null || true; }
write_stamp() { mkdir -p build/stamps; printf '%s\n' "$2" > "build/stamps/$1"; }

packages() {
  local wanted missing=()
  mapfile -t wanted < <(grep -hv '^#' "$@" | grep .)
  command -v dpkg-query > /dev/null || { say "no dpkg here: install the equivalents of $* yourself"; return 0; }
  for package in "${wanted[@]}"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2> /dev/null) == installed ]] || missing+=("$package")
  done
  [[ ${#missing[@]} -eq 0 ]] && return 0
  local sudo=()
  if [[ $(id -u) -ne 0 ]]; then
    sudo -n true 2> /dev/null || die "Debian packages are missing; run this once, then make setup again:
  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
    sudo=(sudo -n)
  fi
  step "reading Debian's list of packages" "${sudo[@]}" apt-get update
  step "installing ${missing[*]}" \
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}

# Installs the pins of some files into .venv. The pins are complete, so pip has nothing to resolve.
python_packages() {
  local name=$1 files=("${@:2}") want options=()
  want=$(cat "${files[@]}" | sha256sum)
  [[ $(stamp_of "$name") == "$want" ]] && return 0
  for file in "${files[@]}"; do options+=(-r "$file"); done
  step "installing the Python packages of ${files[*]}" \
    .venv/bin/python -m pip install --disable-pip-version-check --no-deps "${options[@]}"
  write_stamp "$name" "$want"
}

python_environment() {
  local python=${PYTHON:-python3} want
  want=$("$python" -c 'import sys; print(sys.version)' | cat - tools/requirements.txt tools/requirements-test.txt | sha256sum)
  [[ -x .venv/bin/python && $(stamp_of python) == "$want" ]] && return 0
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "the tools need Python 3.11 or newer, $python is $($python --version): name another with PYTHON=..."
  rm -rf .venv build/stamps
  step "making .venv with $($python --version)" "$python" -m venv .venv
  write_stamp python "$want"
}

# One build tree serves the installed package and the tests.
build() {
  local tests=$1 target=$2
  if [[ ! -f build/release/build.ninja ]] || ! grep -q "^HVD_BUILD_TESTS:.*=$tests$" build/release/CMakeCache.txt; then
    step "configuring the build" cmake --preset release -DHVD_BUILD_TESTS="$tests"
  fi
  # A build with nothing to do says nothing.
  [[ $(ninja -C build/release -n "$target" 2>&1) == *'no work to do'* ]] ||
    step "compiling: $target" ninja -C build/release "$target"
}

# What the wheel is made of. Editing a test does not install the package again.
package_sources() {
  find pyproject.toml CMakeLists.txt cmake include src python tools/CMakeLists.txt tools/build_backend.py tools/hvd_perf \
    benchmarks/models.py README.md LICENSE -type f -not -name '*.pyc' -not -name '*.md5' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum
}

python_package() {
  local tests=$1 want
  want=$(package_sources)
  [[ $(stamp_of package) == "$want" ]] && .venv/bin/python -c 'import horovod' 2> /dev/null && return 0
  step "installing the package into .venv" \
    .venv/bin/python -m pip install --disable-pip-version-check --no-build-isolation --no-deps --no-index --force-reinstall \
    --config-settings=build-dir=build/release --config-settings=build.targets=wheel_files \
    --config-settings=cmake.build-type=RelWithDebInfo "--config-settings=cmake.define.HVD_BUILD_TESTS=$tests" .
  write_stamp package "$want"
}

mkdir -p build
case ${1:-} in
  packages)
    packages "${@:2}"
    exit 0
    ;;
  install | wheel)
    packages tools/debian-packages.txt
    python_environment
    python_packages requirements tools/requirements.txt
    [[ $1 == install ]] || python_packages requirements-wheel tools/requirements-wheel.txt
    # A tree that builds tests goes on doing so.
    tests=$(grep -qs '^HVD_BUILD_TESTS:.*=ON$' build/release/CMakeCache.txt && echo ON || echo OFF)
    build "$tests" wheel_files
    python_package "$tests"
    ;;
  *)
    packages tools/debian-packages.txt tools/debian-packages-test.txt
    python_environment
    python_packages requirements tools/requirements.txt
    python_packages requirements-test tools/requirements-test.txt
    build ON all
    python_package ON
    ;;
esac
say "ready"
