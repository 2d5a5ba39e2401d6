# SPDX-License-Identifier: Apache-2.0
"""One TensorFlow script, unchanged, by every launcher, alone, and beside another job of the same machine."""

import json
import pathlib
import sys

import launching
import pytest
import starters

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples/tensorflow/tape.py"
WORDS = [str(SCRIPT), "--steps", "24"]
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


def trained(result, ranks):
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{ranks} ranks, test accuracy" in result.stdout
    assert "identical weights: True" in result.stdout
    return result.stdout


@pytest.mark.row("e1", "e4", "e21", "k4", "k5", "k6")
def test_by_horovodrun_without_python_in_front_and_with_a_timeline(tmp_path):
    env = {**QUIET, "HOROVOD_TIMELINE": str(tmp_path / "timeline.json")}
    result = launching.horovodrun("-np", "2", *WORDS, env=env, timeout=240)
    assert all(line.startswith("[0]<stdout>:") for line in trained(result, 2).splitlines())
    events = json.loads((tmp_path / "timeline.json").read_text())
    names = {event.get("name") for event in events}
    assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "BROADCAST"} <= names
    assert any("training_step.tape.0.grad_0" in str(event.get("args")) for event in events)


@pytest.mark.row("e9")
@starters.both_mpis
def test_by_mpirun(mpi):
    trained(starters.mpirun(mpi, 2, *WORDS, **QUIET), 2)


@pytest.mark.row("e8", "e20", "i9")
def test_alone():
    trained(launching.run([sys.executable, *WORDS], launching.clean_environment(**QUIET), 240), 1)


@pytest.mark.row("k20", "k21")
def test_two_jobs_with_more_ranks_than_cores_at_the_same_time():
    words = ["-np", "3", sys.executable, *WORDS]
    with launching.start([launching.HOROVODRUN, *words], launching.clean_environment(**QUIET)) as other:
        trained(launching.horovodrun(*words, env=QUIET, timeout=280), 3)
        output, errors = other.communicate(timeout=280)
    assert other.returncode == 0, output + errors
    assert "3 ranks, test accuracy" in output
