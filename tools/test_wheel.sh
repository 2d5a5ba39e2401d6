#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of TensorFlow, Keras and strategies against the wheel that `make wheel` has left in dist/. It is
# installed into build/suites/dist; TensorFlow and pytest are those of .venv, which comes later in that environment's
# path.
#
#   tools/test_wheel.sh [ARGUMENTS OF PYTEST]
set -euo pipefail
cd "$(dirname "$0")/.."

program="test-wheel"
. tools/step.sh
environment=build/suites/dist
python=$environment/bin/python
wheels=(dist/hvd-*.whl)
[[ -f ${wheels[0]} ]] || die "there is no wheel in dist/: run make wheel"
rm -rf "$environment"
step "making $environment" .venv/bin/python -m venv "$environment"
step "installing ${wheels[0]}" "$python" -m pip install --disable-pip-version-check --no-deps --no-index "${wheels[0]}"
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$packages/clone.pth"
found=$("$python" -c 'import horovod; print(horovod.__file__)')
[[ $found == "$packages"/* ]] || die "the tests would run with $found"
"$python" -m pytest -n "$(($(nproc) + 1))" tests/python/test_*{tensorflow,keras}*.py tests/tensorflow_strategy "$@"
say "the wheel ${wheels[0]} passed"
