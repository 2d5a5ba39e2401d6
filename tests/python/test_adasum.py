# SPDX-License-Identifier: Apache-2.0
"""Adasum against a plain pairwise tree."""

import horovod.numpy as hvd
import ml_dtypes
import numpy as np
import pytest
from ranks import on_ranks
from reference import adasum, near, same_bits

SETS: list[hvd.ProcessSet] = []  # filled in on the ranks
FLOATS = [np.dtype(name) for name in ("float16", "float32", "float64")] + [np.dtype(ml_dtypes.bfloat16)]


def vectors(dtype, shape):
    return [np.random.default_rng(rank).standard_normal(shape).astype(dtype) for rank in range(hvd.size())]


@on_ranks(2, 3, 4, 8)
def test_every_type_and_size():
    for dtype in FLOATS:
        for shape in [(), (0,), (1,), (2, 3), (1000,), (65_537,)]:
            everyone = vectors(dtype, shape)
            for pre, post in [(1.0, 1.0), (0.5, 3.0)]:
                found = hvd.allreduce(
                    everyone[hvd.rank()], op=hvd.Adasum, prescale_factor=pre, postscale_factor=post, name=f"{dtype}"
                )
                assert near(found, adasum(everyone, dtype, pre, post), everyone), (dtype, shape, pre)
                assert all(same_bits(found, other) for other in hvd.allgather_object(found))


@on_ranks(2, 3, 4)
def test_what_it_is_for():
    mine = np.zeros(4)
    mine[hvd.rank()] = hvd.rank() + 1.0
    found = hvd.allreduce(mine, op=hvd.Adasum)
    assert found.tolist() == [rank + 1.0 if rank < hvd.size() else 0 for rank in range(4)]  # orthogonal: their sum
    assert hvd.allreduce(np.full(4, 3.0), op=hvd.Adasum).tolist() == [3.0] * 4  # parallel: their mean
    assert hvd.allreduce(np.zeros(4), op=hvd.Adasum).tolist() == [0.0] * 4
    assert hvd.allreduce_(np.full(4, 3.0), op=hvd.Adasum).tolist() == [3.0] * 4


@on_ranks(2)
def test_a_tiny_vector_beside_a_large_one():
    # Parallel, so half their sum. The factor of the tiny one is 5e43, more than a float can be.
    for dtype, tiny in [("float16", 6e-8), ("float32", 1e-42), ("float64", 1e-42)]:
        mine = np.full(3, 100.0 if hvd.rank() else tiny, dtype)
        assert hvd.allreduce(mine, op=hvd.Adasum, name=dtype) == pytest.approx(50.0, rel=1e-12)


@on_ranks(2, 3)
def test_each_array_of_a_group_for_itself():
    lists = [vectors(np.dtype(np.float32), 100), vectors(np.dtype(np.float64), (7, 3))]
    found = hvd.grouped_allreduce([one[hvd.rank()] for one in lists], op=hvd.Adasum)
    for one, everyone in zip(found, lists):
        assert near(one, adasum(everyone, one.dtype), everyone)


@on_ranks(2, sets=[[0]])
def test_what_is_refused():
    for dtype in ("int32", "uint8", "bool"):
        with pytest.raises(ValueError, match="Adasum is not defined for"):
            hvd.allreduce(np.ones(2, dtype), op=hvd.Adasum, name="x")
    (single,) = SETS
    for call in (
        lambda: hvd.allreduce([1.0], op=hvd.Adasum, process_set=single),
        lambda: hvd.grouped_allreduce_async([[1.0]], op=hvd.Adasum, process_set=single),
    ):
        with pytest.raises(NotImplementedError, match="Adasum works among all ranks only"):
            call()
    assert hvd.allreduce([1.0], op=hvd.Adasum, name="x").tolist() == [1.0]
