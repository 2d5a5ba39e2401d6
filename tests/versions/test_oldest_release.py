# SPDX-License-Identifier: Apache-2.0
"""The oldest TensorFlow that is supported: what smoke.py does; `make test-versions` does it with those between, too."""

import pathlib
import sys

import launching


def test_what_must_work_with_every_release():
    smoke = pathlib.Path(__file__).with_name("smoke.py")
    done = launching.horovodrun("-np", "2", sys.executable, smoke, env={"TF_CPP_MIN_LOG_LEVEL": "2"}, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    # The last of its checks; the strategies have looked for each private name that they use.
    assert "TensorFlow 2.13.1: data_service ok" in done.stdout
