# SPDX-License-Identifier: Apache-2.0
"""Ranks that run out of data."""

import os
import pathlib
import signal
import tempfile
import threading
import time

import horovod.numpy as hvd
import ml_dtypes
import numpy as np
import pytest
from ranks import on_ranks
from reference import adasum, near

FLOATS = [np.dtype(name) for name in ("float16", "float32", "float64")] + [np.dtype(ml_dtypes.bfloat16)]


@on_ranks(2, 3, 4)
def test_everybody_hears_who_came_last_and_may_join_again():
    for last in range(hvd.size()):
        steps = 3 if hvd.rank() == last else 1
        for step in range(steps):
            everybody = step == 0
            total = hvd.allreduce(np.ones(5), op=hvd.Sum, name=f"step{step}")
            assert (total == (hvd.size() if everybody else 1)).all()
        found = hvd.join()
        assert found == last
        assert type(found) is int


@on_ranks(3)
def test_zeros_in_sums_and_nothing_elsewhere():
    mine = np.array([-2.0, 3.0]) * (hvd.rank() + 1)
    if hvd.rank() < 2:
        for op, expected in [
            (hvd.Sum, [-6.0, 9.0]),
            (hvd.Average, [-2.0, 3.0]),  # by the number of all ranks
            (hvd.Min, [-4.0, 3.0]),
            (hvd.Max, [-2.0, 6.0]),
            (hvd.Product, [8.0, 18.0]),
        ]:
            for dtype in (*FLOATS, np.dtype(np.int32), np.dtype(np.int8)):
                found = hvd.allreduce(mine.astype(dtype), op=op, name=f"{dtype}{op}")
                assert found.tolist() == expected, (op, dtype)
        assert hvd.allreduce([True, False], op=hvd.Min, name="and").tolist() == [True, False]
        assert hvd.allreduce([True, False], op=hvd.Max, name="or").tolist() == [True, False]
        group = hvd.grouped_allreduce([mine, mine[:1]], op=hvd.Sum, name="group")
        assert [one.tolist() for one in group] == [[-6.0, 9.0], [-6.0]]
    hvd.join()


@on_ranks(3)
def test_scaled_products_minima_and_maxima_say_that_they_cannot():
    if hvd.rank() < 2:
        for op in (hvd.Product, hvd.Min, hvd.Max):
            with pytest.raises(hvd.HorovodInternalError, match="is not supported with Join: rank 2 joined already"):
                hvd.allreduce([2.0], op=op, prescale_factor=3.0, name=f"scaled{op}")
        assert hvd.allreduce([2.0], op=hvd.Sum, prescale_factor=3.0, name="sum").tolist() == [12.0]
    hvd.join()


@on_ranks(2, 3, 4)
def test_adasum_with_zeros():
    vectors = [np.random.default_rng(rank).standard_normal(1000).astype(np.float32) for rank in range(hvd.size())]
    if hvd.rank() != 1:
        found = hvd.allreduce(vectors[hvd.rank()], op=hvd.Adasum, name="adasum")
        vectors[1][:] = 0
        assert near(found, adasum(vectors, np.dtype(np.float32)), vectors)
    hvd.join()


OTHERS = {
    "Allgather": lambda: hvd.allgather([1.0], name="x"),
    "Alltoall": lambda: hvd.alltoall(np.ones(hvd.size()), name="x"),
    "Reducescatter": lambda: hvd.reducescatter([1.0], name="x"),
    "Broadcast": lambda: hvd.broadcast([1.0], 0, name="x"),
}


@on_ranks(2, 3)
def test_other_operations_fail_and_the_engine_goes_on():
    for call in OTHERS.values():
        call()
    if hvd.rank() > 0:
        for name, call in OTHERS.items():
            with pytest.raises(hvd.HorovodInternalError, match=f"{name} is not supported with Join at this time"):
                call()
            with pytest.raises(hvd.HorovodInternalError, match=f"{name} is not supported with Join") as raised:
                call()
            # The root of the broadcast has joined: no setting helps.
            assert ("HOROVOD_JOIN_EXTENDED=1 allows it" in str(raised.value)) == (name != "Broadcast")
        with pytest.raises(hvd.HorovodInternalError, match="HOROVOD_JOIN_EXTENDED=1 allows it"):
            hvd.broadcast([1.0], 1, name="x")
        assert hvd.allreduce(1, op=hvd.Sum, name="fine") == hvd.size() - 1
    hvd.join()
    for call in OTHERS.values():
        call()


@on_ranks(3, env={"HOROVOD_JOIN_EXTENDED": "1"})
def test_other_operations_where_they_are_allowed():
    if hvd.rank() > 0:
        assert hvd.allgather([hvd.rank()], name="x").tolist() == [1, 2]
        assert hvd.broadcast([hvd.rank()], 2, name="x").tolist() == [2]
        found, splits = hvd.alltoall([1, 2, 3], splits=[1, 1, 1], name="x")
        assert (found.tolist(), splits.tolist()) == ([hvd.rank() + 1] * 2, [0, 1, 1])
        # Rank 0's row is computed for nobody.
        assert hvd.reducescatter(np.arange(3), op=hvd.Sum, name="x").tolist() == [2 * hvd.rank()]
        with pytest.raises(hvd.HorovodInternalError, match="Root rank 0 is one of those"):
            hvd.broadcast([1.0], 0, name="y")
    hvd.join()


@on_ranks(2, env={"HOROVOD_JOIN_EXTENDED": "1", "HOROVOD_DYNAMIC_PROCESS_SETS": "1"})
def test_changes_of_the_process_sets_wait_until_all_have_joined():
    some = hvd.add_process_set([0])
    if hvd.rank() == 1:
        for call in (lambda: hvd.add_process_set([1]), lambda: hvd.remove_process_set(some)):
            with pytest.raises(
                hvd.HorovodInternalError,
                match=r"_process_set is not supported with Join at this time: rank 0 has joined already, in .*_set\. "
                r"Call it before join\(\), or when join\(\) has returned.$",
            ):
                call()
    hvd.join()
    assert hvd.remove_process_set(some)


@on_ranks(2)
def test_operations_in_flight_and_names_known_from_before():
    for _ in range(3):
        assert hvd.allreduce(1, op=hvd.Sum, name="known") == 2
    handle = hvd.allreduce_async(np.ones(3), op=hvd.Sum, name="in flight")
    if hvd.rank() == 1:
        for _ in range(3):
            assert hvd.allreduce(1, op=hvd.Sum, name="known") == 1
    hvd.join()
    assert (hvd.synchronize(handle) == 2).all()
    assert hvd.allreduce(1, op=hvd.Sum, name="known") == 2


@on_ranks(2)
def test_ctrl_c_ends_the_wait_and_the_next_call_goes_on_with_it():
    # Nothing of the engine may keep rank 1 meanwhile: a file tells it when to go on.
    seen = pathlib.Path(tempfile.gettempdir()) / f"hvd-test-{os.environ['HOROVOD_RENDEZVOUS_ADDR']}"
    if hvd.rank() == 0:
        try:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                hvd.join()
            # It has joined all the same.
            with pytest.raises(hvd.HorovodInternalError, match=r"after join\(\)"):
                hvd.allreduce(1.0, name="too late")
        finally:
            seen.touch()
    else:
        deadline = time.monotonic() + 20
        while not seen.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        seen.unlink()
        assert hvd.allreduce(1, op=hvd.Sum, name="alone") == 1
    assert hvd.join() == 1
    assert hvd.allreduce(1, op=hvd.Sum, name="after") == 2


@pytest.mark.usefixtures("engine")
def test_one_rank():
    assert hvd.join() == 0
    assert hvd.join(device=-1) == 0
    with pytest.raises(TypeError, match="device='cpu'"):
        hvd.join("cpu")
    hvd.shutdown()
    with pytest.raises(ValueError, match=r"hvd\.init\(\)"):
        hvd.join()


@on_ranks(2, env={"HOROVOD_OP_TIMEOUT_SECONDS": "1"})
def test_a_rank_whose_operation_timed_out_joins_and_leaves():
    # The operation goes on for the other's sake, who stands in for itself; rank 0 may not leave before that is over.
    over = pathlib.Path(tempfile.gettempdir()) / f"hvd-test-over-{os.environ['HOROVOD_RENDEZVOUS_ADDR']}"
    if hvd.rank() == 0:
        with pytest.raises(hvd.HorovodTimeoutError):
            hvd.allreduce(np.ones(8 << 20, np.float32), name="late")
        over.touch()
    else:
        deadline = time.monotonic() + 60
        while not over.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        over.unlink()
    assert hvd.join() in (0, 1)
    hvd.shutdown()
