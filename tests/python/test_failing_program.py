# SPDX-License-Identifier: Apache-2.0
"""A program that ends with an exception: the other ranks, the flight recorder and its command name the exception."""

import subprocess
import sys

import pytest
import spawn

CODE = """
import sys
import numpy as np, horovod.numpy as hvd
hvd.init()

def train(how):
    for step in range(4):
        if hvd.rank() == 1 and step == 3:
            if how == "pending":
                hvd.allreduce_async(np.ones(2), name="never")
            if how == "exit":
                sys.exit(0)
            raise ValueError("bad sample\\n17")
        hvd.allreduce(np.ones(2), name="x")

if sys.argv[1] == "finally":
    try:
        train("finally")
    finally:
        hvd.shutdown()
else:
    train(sys.argv[1])
"""


def verdict_of(folder):
    command = [sys.executable, "-m", "horovod.flight", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout


@pytest.mark.parametrize("how", ["idle", "pending", "finally"])
def test_the_exception_is_handed_on(how, tmp_path):
    env = {"HOROVOD_FLIGHT_DIR": str(tmp_path)}
    results = spawn.spawn([sys.executable, "-c", CODE, how], 3, env=env, timeout=60)
    assert [result.returncode for result in results] == [1, 1, 1]
    for rank in (0, 2):
        assert "Horovod has been shut down: rank 1 " in results[rank].output
        assert "it failed with ValueError: bad sample 17" in results[rank].output
    verdict = verdict_of(tmp_path)
    assert "At fault: rank 1: failed with ValueError: bad sample 17" in verdict
    assert "good order" not in verdict


def test_a_program_that_ends_early_has_not_failed(tmp_path):
    env = {"HOROVOD_FLIGHT_DIR": str(tmp_path)}
    results = spawn.spawn([sys.executable, "-c", CODE, "exit"], 2, env=env, timeout=60)
    assert results[1].returncode == 0
    assert "failed with" not in results[0].output
    assert "left in good order" in verdict_of(tmp_path)


def test_a_user_signal_to_a_rank_without_a_folder_is_one_line():
    code = """
import os, signal
import numpy as np, horovod.numpy as hvd
hvd.init()
os.kill(os.getpid(), signal.SIGUSR2)
hvd.allreduce(np.ones(2))
"""
    for rank, output in enumerate(spawn.run([sys.executable, "-c", code], 2)):
        assert output.count("HOROVOD_FLIGHT_DIR is not set") == 1
        assert f"rank {rank}" in output
