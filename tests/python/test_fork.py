# SPDX-License-Identifier: Apache-2.0
"""A forked child gets the same clear error from every call, and the parent is unharmed."""

import multiprocessing
import traceback

import horovod.numpy as hvd
import numpy as np
import pytest

CALLS = {
    "allreduce": lambda _: hvd.allreduce(1.0),
    "allreduce_": lambda _: hvd.allreduce_(np.ones(2)),
    "allreduce_async": lambda _: hvd.allreduce_async(1.0),
    "allgather": lambda _: hvd.allgather([1.0]),
    "broadcast": lambda _: hvd.broadcast(1.0, 0),
    "broadcast_parameters": lambda _: hvd.broadcast_parameters([np.ones(2)], 0),
    "broadcast_object": lambda _: hvd.broadcast_object(1),
    "allgather_object": lambda _: hvd.allgather_object(1),
    "barrier": lambda _: hvd.barrier(),
    "poll": hvd.poll,
    "synchronize": hvd.synchronize,
    "empty": lambda _: hvd.empty(10),
    "init": lambda _: hvd.init(),
    "rank": lambda _: hvd.rank(),
    "size": lambda _: hvd.size(),
    "included": lambda _: hvd.global_process_set.included(),
}


def in_child(function, *arguments):
    """Call it in a forked child and return what it returns, or the text of what it raises."""
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def work():
        try:
            queue.put(function(*arguments))
        except BaseException as error:
            queue.put("".join(traceback.format_exception_only(type(error), error)))

    child = context.Process(target=work)
    child.start()
    answer = queue.get()
    child.join(20)
    assert child.exitcode == 0
    return answer


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("call", CALLS)
def test_every_call_says_that_the_process_was_forked(call):
    handle = hvd.allreduce_async(np.ones(3))
    text = in_child(CALLS[call], handle)
    assert "HorovodIn" in text  # HorovodInternalError, or for init its own kind
    assert "this process was forked" in text
    assert "spawn" in text
    assert hvd.allreduce(1.0) == 1.0  # the parent is unharmed
    assert (hvd.synchronize(handle) == 1).all()


@pytest.mark.usefixtures("engine")
def test_the_end_of_a_child_is_no_error():
    def leave():
        hvd.shutdown()
        return hvd.is_initialized()

    assert in_child(leave) is False
    assert hvd.is_initialized()
    assert hvd.allreduce(1.0) == 1.0


def reduce_in_a_job_of_ones_own():
    hvd.init()
    return float(hvd.allreduce(np.full(1 << 16, 2.0), op=hvd.Sum).sum()), hvd.allgather([3.0]).tolist()


@pytest.mark.usefixtures("no_engine")
def test_a_child_of_a_process_that_is_not_initialised_may_be_a_rank_and_has_memory_of_its_own():
    memory = hvd.empty(1 << 16)
    memory[:] = 1
    assert in_child(reduce_in_a_job_of_ones_own) == (2.0 * (1 << 16), [3.0])
    assert (memory == 1).all()
    assert not hvd.empty(1 << 16).any()


@pytest.mark.usefixtures("no_engine")
def test_an_array_that_parent_and_children_share_is_refused():
    memory = hvd.empty(1000)

    def reduce_it():
        hvd.init()
        return hvd.allreduce(memory).tolist()

    assert "before this process was forked" in in_child(reduce_it)
