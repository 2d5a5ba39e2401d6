#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prepares everything that building and testing need. Each step leaves a stamp and is skipped while its inputs are unchanged,
# so a second run takes seconds and needs no network.
#
#   tools/setup.sh              packages, .venv, build, installed package
#   tools/setup.sh install      the same without the tests and tools of the build: enough to use the package
#   tools/setup.sh packages FILE  only the Debian packages listed in FILE
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }
# A stamp holds the hash of the inputs that made it.
stamp_of() { cat "build/stamps/$1" 2>/dev/null || true; }
write_stamp() { mkdir -p build/stamps; printf '%s\n' "$2" > "build/stamps/$1"; }

packages() {
  local list=$1 wanted missing=()
  mapfile -t wanted < <(grep -v '^#' "$list" | grep .)
  command -v dpkg-query > /dev/null || { say "no dpkg here: install the equivalents of $list yourself"; return 0; }
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
  say "installing ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
}

python_environment() {
  local python=${PYTHON:-python3} want
  want=$("$python" -c 'import sys; print(sys.version)' | cat - tools/requirements.txt | sha256sum)
  [[ -x .venv/bin/python && $(stamp_of venv) == "$want" ]] && return 0
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "the tools need Python 3.11 or newer, $python is $($python --version): name another with PYTHON=..."
  say "making .venv with $($python --version)"
  rm -rf .venv
  "$python" -m venv .venv || die "$python cannot make a virtual environment: install python3-venv"
  # The pins are complete, so pip has nothing to resolve.
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tools/requirements.txt
  write_stamp venv "$want"
  rm -f build/stamps/package
}

build() {
  [[ -f build/release/build.ninja ]] || cmake --preset release > build/release-configure.log 2>&1 ||
    { cat build/release-configure.log >&2; die "configuring failed"; }
  cmake --build --preset release
}

# What the wheel is made of. Editing a test does not install the package again.
package_sources() {
  find pyproject.toml CMakeLists.txt cmake include src python tools/CMakeLists.txt tools/hvd_perf benchmarks/models.py \
    README.md LICENSE -type f -not -name '*.pyc' -not -name '*.md5' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum
}

python_package() {
  local want
  want=$(package_sources)
  [[ $(stamp_of package) == "$want" ]] && .venv/bin/python -c 'import horovod' 2> /dev/null && return 0
  say "installing the package into .venv"
  # Built as the release preset builds and at the same depth (build/wheel), so that ccache has every object already.
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --no-index \
    --force-reinstall --config-settings=cmake.build-type=RelWithDebInfo \
    "--config-settings=cmake.define.CMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -g1 -DNDEBUG" .
  write_stamp package "$want"
}

mkdir -p build
if [[ ${1:-} == packages ]]; then
  packages "$2"
  exit 0
fi
packages tools/debian-packages.txt
python_environment
[[ ${1:-} == install ]] || build
python_package
say "ready"
