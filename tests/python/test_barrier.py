# SPDX-License-Identifier: Apache-2.0
"""barrier: order among ranks, also when several threads of a rank use it."""

import os
import pathlib
import tempfile
import threading
import time

import horovod.numpy as hvd
import pytest
from ranks import on_ranks

SETS: list[hvd.ProcessSet] = []  # filled in on the ranks


@on_ranks(2)
def test_barrier_waits():
    for _ in range(50):
        hvd.barrier()
    hvd.barrier(process_set=hvd.global_process_set)


@on_ranks(2, 3, sets=[[0], [1]])
def test_threads_may_wait_at_the_same_time():
    failures = []

    def work(process_set):
        try:
            for _ in range(30):
                hvd.barrier(process_set)
        except BaseException as error:
            failures.append(repr(error))

    mine = [hvd.global_process_set, *(one for one in SETS if one.included())]
    threads = [threading.Thread(target=work, args=(one,)) for one in mine * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@on_ranks(2, env={"HOROVOD_OP_TIMEOUT_SECONDS": "0.5"})
def test_a_barrier_after_one_that_timed_out_says_so():
    # Rank 1 must not leave meanwhile, and nothing of the engine may keep it: a file tells it when to go.
    seen = pathlib.Path(tempfile.gettempdir()) / f"hvd-barrier-{os.environ['HOROVOD_RENDEZVOUS_ADDR']}"
    if hvd.rank() == 0:
        try:
            with pytest.raises(TimeoutError, match="rank 1"):
                hvd.barrier()
            with pytest.raises(ValueError, match=r"barrier\(\).*earlier.*process set 0.*other ranks"):
                hvd.barrier()
        finally:
            seen.touch()
        return
    deadline = time.monotonic() + 60
    while not seen.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    seen.unlink()
