# SPDX-License-Identifier: Apache-2.0
"""Ranks that do not want the same thing: all of them are told, and go on."""

import horovod.numpy as hvd
import numpy as np
import pytest
from ranks import on_ranks

DISAGREEMENTS = {
    "Mismatched data types": lambda r: hvd.allreduce(np.ones(3, [np.float32, np.float64][r]), name="x"),
    "Mismatched ALLREDUCE tensor shapes": lambda r: hvd.allreduce(np.ones(3 + r), name="x"),
    "Mismatched prescale and/or postscale": lambda r: hvd.allreduce(np.ones(3), prescale_factor=1.0 + r, name="x"),
    "Mismatched reduction operation": lambda r: hvd.allreduce(np.ones(3), op=[hvd.Sum, hvd.Max][r], name="x"),
    "Mismatched ALLGATHER tensor shapes": lambda r: hvd.allgather(np.ones((2, 3 + r)), name="x"),
    "Mismatched BROADCAST tensor shapes": lambda r: hvd.broadcast(np.ones(3 + r), 0, name="x"),
    "Mismatched BROADCAST root ranks": lambda r: hvd.broadcast(np.ones(3), r, name="x"),
    "rank zero tried to ALLGATHER a rank-zero tensor": lambda r: hvd.allgather(np.float32(1), name="x"),
    "Mismatched operations": lambda r: hvd.allreduce(np.ones(3), op=[hvd.Adasum, hvd.Sum][r], name="x"),
    "Mismatched ADASUM tensor shapes": lambda r: hvd.allreduce(np.ones(3 + r), op=hvd.Adasum, name="x"),
    "Mismatched data types.*float16": lambda r: hvd.allreduce(np.ones(3, ["f2", "f8"][r]), op=hvd.Adasum, name="x"),
    "Mismatched ALLTOALL tensor shapes.*of rank": lambda r: hvd.alltoall(np.ones((6, 2)[: 1 + r]), name="x"),
    "Mismatched ALLTOALL tensor shapes.*dimension 1 equal": lambda r: hvd.alltoall(np.ones((6, 2 + r)), name="x"),
    "Mismatched data types.*int64": lambda r: hvd.alltoall(np.ones(6, ["i8", "f4"][r]), name="x"),
    "rank zero tried to ALLTOALL a rank-zero tensor": lambda r: hvd.alltoall(1.0, name="x"),
    "Mismatched REDUCESCATTER tensor shapes": lambda r: hvd.reducescatter(np.ones((3, 2 + r)), name="x"),
    "Mismatched data types.*int32": lambda r: hvd.reducescatter(np.ones(6, ["i4", "f4"][r]), name="x"),
    "Mismatched prescale and/or postscale factors": lambda r: hvd.reducescatter(np.ones(3), op=r, name="x"),
    "prescale 2": lambda r: hvd.reducescatter(np.ones(3), prescale_factor=1.0 + r, name="x"),
    "Mismatched ALLREDUCE tensor shapes: .*2of2": lambda r: hvd.grouped_allreduce([[1.0], np.ones(1 + r)], name="x"),
    "Mismatched ALLGATHER tensor shapes: .*1of2": lambda r: hvd.grouped_allgather([np.ones((1, 1 + r)), [1]], name="x"),
    "Mismatched REDUCESCATTER tensor shapes: .*2of2": lambda r: hvd.grouped_reducescatter(
        [[1.0], np.ones(1 + r)], name="x"
    ),
}


@on_ranks(2, 3)
def test_ranks_that_disagree_all_get_the_same_error_and_go_on():
    texts = []
    for _ in range(2):  # also when the good plan is known from before
        for i, (text, call) in enumerate(DISAGREEMENTS.items()):
            with pytest.raises(hvd.HorovodInternalError, match=f"(?s){text}") as caught:
                call(min(hvd.rank(), 1))
            texts.append(str(caught.value))
            assert "x" in texts[-1]
            assert (hvd.allreduce(np.ones(2), op=hvd.Sum, name=f"after.{i}") == hvd.size()).all()
    assert len({tuple(one) for one in hvd.allgather_object(texts)}) == 1


@on_ranks(2)
def test_a_name_in_flight_cannot_be_used_again():
    first = hvd.allreduce_async(np.ones(3), name="same") if hvd.rank() == 0 else None
    if hvd.rank() == 0:
        with pytest.raises(ValueError, match="same name as another tensor that is currently being processed"):
            hvd.allreduce_async(np.ones(3), name="same")
    hvd.barrier()
    if hvd.rank() == 1:
        first = hvd.allreduce_async(np.ones(3), name="same")
    assert (hvd.synchronize(first) == 1).all()


@on_ranks(2)
def test_local_errors_leave_the_peer_alone():
    if hvd.rank() == 0:
        for bad in (lambda: hvd.broadcast([1.0], 5), lambda: hvd.allreduce([1j]), lambda: hvd.allreduce([True])):
            with pytest.raises(ValueError):
                bad()
    assert (hvd.allreduce(np.ones(2), op=hvd.Sum, name="fine") == 2).all()
