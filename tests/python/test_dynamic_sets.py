# SPDX-License-Identifier: Apache-2.0
"""Process sets that come and go."""

import os
import pathlib
import signal
import tempfile
import threading
import time

import horovod.numpy as hvd
import numpy as np
import pytest
from ranks import on_ranks

SETS: list[hvd.ProcessSet] = []  # filled in on the ranks
DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}


@on_ranks(3, env=DYNAMIC)
def test_add_use_and_remove():
    for _ in range(5):
        pair = hvd.ProcessSet([2, 0])
        assert hvd.add_process_set(pair) is pair
        single = hvd.add_process_set([1])
        assert hvd._basics._get_process_set_ids_and_ranks() == {
            0: [0, 1, 2],
            pair.process_set_id: [0, 2],
            single.process_set_id: [1],
        }
        assert pair.included() == (hvd.rank() != 1)
        if pair.included():
            # Without names: the numbers of an earlier set with this id do not count.
            assert hvd.allreduce(hvd.rank(), op=hvd.Sum, process_set=pair) == 2
            assert hvd.allgather([hvd.rank()], process_set=pair).tolist() == [0, 2]
            hvd.barrier(process_set=pair)
        else:
            with pytest.raises(ValueError, match="Rank 1 is not a member"):
                hvd.allreduce(1.0, process_set=pair)
            assert hvd.allreduce(5, process_set=single) == 5
        assert hvd.remove_process_set(pair) is True
        assert (pair.process_set_id, pair.size(), pair.rank(), pair.included()) == (None, None, None, None)
        with pytest.raises(ValueError, match="not registered"):
            hvd.allreduce(1.0, process_set=pair)
        assert hvd.remove_process_set(pair) is False
        assert hvd.remove_process_set(single) is True
        assert hvd._basics._get_process_set_ids_and_ranks() == {0: [0, 1, 2]}
    assert hvd.allreduce(1, op=hvd.Sum) == 3


@on_ranks(3, env=DYNAMIC)
def test_sets_that_come_and_go_take_no_more_memory():
    def shared_kib():
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssShmem"))

    def come_and_go(times):
        for _ in range(times):
            pair = hvd.add_process_set([0, 1])
            everybody_but_one = hvd.add_process_set([1, 2])
            for some in (pair, everybody_but_one):
                if some.included():
                    assert hvd.allreduce(1, op=hvd.Sum, process_set=some) == 2
            hvd.remove_process_set(pair)
            hvd.remove_process_set(everybody_but_one)

    come_and_go(10)
    before = shared_kib()
    come_and_go(100)
    assert shared_kib() <= before + 256


@on_ranks(3, env=DYNAMIC)
def test_ids_are_used_again_in_the_order_in_which_they_became_free():
    one, two, three = (hvd.add_process_set(ranks) for ranks in ([0], [1], [2]))
    assert [one.process_set_id, two.process_set_id, three.process_set_id] == [1, 2, 3]
    hvd.remove_process_set(two)
    hvd.remove_process_set(one)
    assert hvd.add_process_set([0, 1]).process_set_id == 2
    assert hvd.add_process_set(one).process_set_id == 1
    assert hvd.add_process_set([1, 2]).process_set_id == 4


@on_ranks(3, env=DYNAMIC)
def test_unnamed_operations_of_a_set_with_a_used_id():
    first = hvd.add_process_set([0, 1])
    if first.included():
        for _ in range(3):
            hvd.allreduce(1, op=hvd.Sum, process_set=first)
    hvd.remove_process_set(first)
    second = hvd.add_process_set([1, 2])
    assert second.process_set_id == 1
    if second.included():
        assert hvd.allreduce(1, op=hvd.Sum, process_set=second) == 2


@on_ranks(2, 3, sets=[[0]], env=DYNAMIC)
def test_beside_sets_of_init():
    (static,) = SETS
    added = hvd.add_process_set([1])
    assert (static.process_set_id, added.process_set_id) == (1, 2)
    assert hvd.remove_process_set(static) is True
    assert static.process_set_id is None
    assert hvd.add_process_set([0]).process_set_id == 1


@on_ranks(2, env=DYNAMIC)
def test_wrong_sets_are_found_before_anybody_waits():
    some = hvd.add_process_set([1])
    for bad, text in [
        ([0, 1], "same ranks as process set 0"),
        ([1], f"same ranks as process set {some.process_set_id}"),
        (some, "registered already"),
        ([2], "names rank 2, but ranks are 0 to 1"),
        ([-1], "names a rank that no job has"),
        ([2**40], "names a rank that no job has"),
        ([0, 0], "names rank 0 twice"),
        ([], "is empty"),
        (["a"], "whole numbers"),
        (3, "needs ranks"),
    ]:
        if hvd.rank() == 0:
            with pytest.raises(ValueError, match=text):
                hvd.add_process_set(bad)
    stranger = hvd.ProcessSet([0])
    stranger.process_set_id = 77
    with pytest.raises(ValueError, match="process set 77 does not exist"):
        hvd.remove_process_set(stranger)
    assert hvd.remove_process_set(hvd.global_process_set) is False
    assert hvd.remove_process_set(some) is True
    assert hvd.allreduce(1, op=hvd.Sum) == 2


@on_ranks(2, 3, env=DYNAMIC)
def test_ranks_that_disagree_all_hear_of_it():
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched process sets"):
        hvd.add_process_set([min(hvd.rank(), 1)])
    one, two = hvd.add_process_set([0]), hvd.add_process_set([1])
    with pytest.raises(
        hvd.HorovodInternalError,
        match=r"One rank removed process set 1, but another rank removed process set 2: rank 0 has process set 1, rank",
    ):
        hvd.remove_process_set(one if hvd.rank() == 0 else two)
    assert (one.process_set_id, two.process_set_id) == (1, 2)
    assert hvd.remove_process_set(one) is True
    assert hvd.allreduce(1, op=hvd.Sum) == hvd.size()


@on_ranks(2, sets=[[0]])
def test_a_job_that_is_not_dynamic():
    (static,) = SETS
    with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS=1"):
        hvd.add_process_set([1])
    with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS=1"):
        hvd.remove_process_set(static)
    assert static.process_set_id == 1
    assert hvd.allreduce(1, op=hvd.Sum) == 2
    hvd.shutdown()
    assert static.process_set_id is None
    os.environ["HOROVOD_GENERATION"] = "1"
    hvd.init(process_sets="Dynamic")
    added = hvd.add_process_set(static)
    assert added is static
    assert static.process_set_id == 1
    hvd.shutdown()
    assert static.process_set_id is None
    os.environ["HOROVOD_GENERATION"] = "2"
    hvd.init()
    with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS=1"):
        hvd.add_process_set([1])


@on_ranks(2, 3, env=DYNAMIC)
def test_operations_of_other_sets_go_on_meanwhile():
    for step in range(20):
        handles = [hvd.allreduce_async(np.full(1000, i), op=hvd.Sum, name=f"t{i}") for i in range(10)]
        if step % 2 == 0:
            one = hvd.add_process_set([hvd.size() - 1])
        else:
            hvd.remove_process_set(one)
        for i, handle in enumerate(handles):
            assert (hvd.synchronize(handle) == i * hvd.size()).all()


@on_ranks(2, env=DYNAMIC)
def test_ctrl_c_ends_the_wait_and_the_set_is_there_later():
    # Nothing of the engine may keep rank 1 meanwhile: a file tells it when to go on.
    seen = pathlib.Path(tempfile.gettempdir()) / f"hvd-test-{os.environ['HOROVOD_RENDEZVOUS_ADDR']}"
    one = hvd.ProcessSet([0])
    if hvd.rank() == 0:
        try:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                hvd.add_process_set(one)
            assert one.process_set_id is None
        finally:
            seen.touch()
    else:
        deadline = time.monotonic() + 20
        while not seen.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        seen.unlink()
        hvd.add_process_set(one)
    two = hvd.add_process_set([1])  # waits for the earlier one
    assert (one.process_set_id, two.process_set_id) == (1, 2)
    assert hvd.remove_process_set(one) is True


@on_ranks(3, env={**DYNAMIC, "HOROVOD_OP_TIMEOUT_SECONDS": "3"})
def test_time_outs_of_a_removal_and_what_it_waits_for():
    some = hvd.add_process_set([0, 1])
    for _ in range(3 if some.included() else 0):
        assert hvd.allreduce(1, op=hvd.Sum, name="x", process_set=some) == 2
    early = hvd.allreduce_async(1, op=hvd.Sum, name="x", process_set=some) if hvd.rank() == 0 else None
    what = "REMOVE_PROCESS_SET timed out: this rank's own operations on process set 1 are not over"
    with pytest.raises(hvd.HorovodTimeoutError, match="rank 0 has not submitted it" if hvd.rank() else what):
        hvd.remove_process_set(some)
    if hvd.rank() == 0:
        with pytest.raises(hvd.HorovodTimeoutError, match="timed out: rank 1 has not submitted it"):
            hvd.synchronize(early)
    elif hvd.rank() == 1:
        # The others may remove it at any time now, for all that this rank has said.
        with pytest.raises(ValueError, match=r"'allreduce\.x' was submitted to process set 1 after"):
            hvd.allreduce(1, op=hvd.Sum, name="x", process_set=some)
    with pytest.raises(ValueError, match="an earlier REMOVE_PROCESS_SET of this rank timed out and is not over"):
        hvd.add_process_set([1])
    hvd.barrier()  # who leaves with the removal pending ends the job of the others


@on_ranks(3, env=DYNAMIC)
def test_a_set_whose_removal_failed_goes_on():
    one, two = hvd.add_process_set([0, 1]), hvd.add_process_set([1, 2])
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched process sets"):
        hvd.remove_process_set(two if hvd.rank() == 2 else one)
    for each in (one, two):
        if each.included():
            assert hvd.allreduce(1, op=hvd.Sum, name="x", process_set=each) == 2


@on_ranks(2, env=DYNAMIC)
def test_one_adds_while_another_removes():
    some = hvd.add_process_set([0])
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched operations: One rank did an REMOVE_PROCESS_SET"):
        hvd.remove_process_set(some) if hvd.rank() == 0 else hvd.add_process_set([1])
    assert hvd.remove_process_set(some) is True


@on_ranks(2, env=DYNAMIC)
def test_sets_are_listed_while_they_come_and_go():
    over = threading.Event()
    seen = []

    def list_them():
        while not over.is_set():
            seen.append(hvd._basics._get_process_set_ids_and_ranks())

    reader = threading.Thread(target=list_them)
    reader.start()
    for _ in range(300):
        assert hvd.remove_process_set(hvd.add_process_set([1])) is True
    over.set()
    reader.join()
    assert all(sets in ({0: [0, 1]}, {0: [0, 1], 1: [1]}) for sets in seen)


@pytest.mark.usefixtures("no_engine")
def test_without_an_engine():
    for call in (lambda: hvd.add_process_set([0]),):
        with pytest.raises(ValueError, match=r"hvd\.init\(\)"):
            call()
    assert hvd.remove_process_set(hvd.ProcessSet([0])) is False
