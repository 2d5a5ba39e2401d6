# SPDX-License-Identifier: Apache-2.0
"""init, shutdown, ranks and the end of a process, without peers."""

import signal
import subprocess
import sys

import horovod.numpy as hvd
import pytest

QUESTIONS = [
    hvd.rank,
    hvd.size,
    hvd.local_rank,
    hvd.local_size,
    hvd.cross_rank,
    hvd.cross_size,
    hvd.is_homogeneous,
    lambda: hvd.allreduce([1.0]),
    lambda: hvd.allreduce_async([1.0]),
    lambda: hvd.broadcast([1.0], 0),
    lambda: hvd.allgather([1.0]),
    hvd.barrier,
]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.usefixtures("no_engine")
def test_before_init_everything_names_init(question):
    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match=r"hvd\.init\(\)"):
        question()


@pytest.mark.usefixtures("engine")
def test_ranks():
    assert hvd.is_initialized()
    assert [hvd.rank(), hvd.local_rank(), hvd.cross_rank()] == [0, 0, 0]
    assert [hvd.size(), hvd.local_size(), hvd.cross_size()] == [1, 1, 1]
    assert hvd.is_homogeneous() is True
    assert hvd.global_process_set.ranks == [0]
    assert hvd._basics._get_process_set_ids_and_ranks() == {0: [0]}


def test_init_and_shutdown_may_be_repeated():
    for i in range(20):
        hvd.init()
        hvd.init()
        assert hvd.allreduce(i, op=hvd.Sum, name="x") == i
        hvd.shutdown()
        hvd.shutdown()
        assert not hvd.is_initialized()


def test_exit_in_the_middle_is_clean():
    code = """
import sys, numpy as np, horovod.numpy as hvd
hvd.init()
hvd.allreduce_async(np.ones(10))
kept = hvd.allgather(np.ones(10))
sys.exit(7)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (result.returncode, result.stderr) == (7, "")


def test_signals_are_left_to_python():
    before = signal.getsignal(signal.SIGINT)
    hvd.init()
    assert signal.getsignal(signal.SIGINT) is before
    hvd.shutdown()


def test_a_flight_recorder_of_absurd_size_is_refused(monkeypatch):
    monkeypatch.setenv("HOROVOD_FLIGHT_ENTRIES", "99999999999999")
    with pytest.raises(ValueError, match="HOROVOD_FLIGHT_ENTRIES=99999999999999 is above 1048576"):
        hvd.init()
