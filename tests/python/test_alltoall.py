# SPDX-License-Identifier: Apache-2.0
"""alltoall: what goes where, and what is refused."""

import re

import horovod.numpy as hvd
import ml_dtypes
import numpy as np
import pytest
from ranks import on_ranks
from reference import same_bits

SETS: list[hvd.ProcessSet] = []  # filled in on the ranks
TYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "bool"]
DTYPES = [*(np.dtype(name) for name in TYPES), np.dtype(ml_dtypes.bfloat16)]


def rows_of(rank, splits, dtype, columns):
    count = sum(splits) * columns
    return (np.random.default_rng(rank).integers(0, 100, count)).astype(dtype).reshape(sum(splits), columns)


@on_ranks(2, 3, 4)
def test_every_type_and_many_splits():
    size, me = hvd.size(), hvd.rank()
    for number, dtype in enumerate(DTYPES):
        for columns in (1, 3, 2000):
            rng = np.random.default_rng([number, columns])
            table = rng.integers(0, 9, (size, size)) * (rng.random((size, size)) < 0.7)
            inputs = [rows_of(rank, table[rank], dtype, columns) for rank in range(size)]
            found, received = hvd.alltoall(inputs[me], splits=table[me], name=f"{dtype}")
            begins = np.cumsum(table, axis=1) - table
            expected = [inputs[r][begins[r, me] : begins[r, me] + table[r, me]] for r in range(size)]
            assert same_bits(found, np.concatenate(expected))
            assert received.tolist() == table[:, me].tolist()


@on_ranks(2, 3, 4)
def test_equal_parts_without_splits():
    size, me = hvd.size(), hvd.rank()
    found = hvd.alltoall(np.arange(2 * size) + 100 * me)
    assert found.tolist() == [100 * rank + 2 * me + i for rank in range(size) for i in range(2)]
    assert hvd.alltoall(np.zeros((0, 4))).shape == (0, 4)
    assert hvd.synchronize(hvd.alltoall_async(np.full((size, 2, 2), me))).shape == (size, 2, 2)
    assert hvd.alltoall(np.zeros((size, 0))).shape == (size, 0)


@on_ranks(2, 3)
def test_kinds_of_splits_and_of_their_answer():
    mine = np.arange(hvd.size())
    ones = [1] * hvd.size()
    for splits, dtype in [
        (ones, np.int32),
        (tuple(ones), np.int32),
        (np.array(ones, np.int32), np.int32),
        (np.array(ones, np.int64), np.int64),
        (np.array(ones, np.uint8), np.uint8),
    ]:
        for form in (hvd.alltoall, lambda *a, **k: hvd.synchronize(hvd.alltoall_async(*a, **k))):
            found, received = form(mine, splits=splits, name="x")
            assert found.tolist() == [hvd.rank()] * hvd.size()
            assert (received.dtype, received.tolist()) == (dtype, ones)
    # One rank may give splits where another does not.
    found = hvd.alltoall(mine, splits=ones if hvd.rank() == 0 else None, name="y")
    assert type(found) is (tuple if hvd.rank() == 0 else np.ndarray)


@on_ranks(2, 3)
def test_rows_that_are_left_over_are_not_sent():
    splits = [1] + [0] * (hvd.size() - 1)
    found, received = hvd.alltoall(np.arange(5) + 10 * hvd.rank(), splits)
    if hvd.rank() == 0:
        assert found.tolist() == [10 * rank for rank in range(hvd.size())]
    else:
        assert found.tolist() == []
    assert received.tolist() == [1 if hvd.rank() == 0 else 0] * hvd.size()


@on_ranks(3, sets=[[0, 2]])
def test_in_a_process_set():
    (pair,) = SETS
    if pair.included():
        found, received = hvd.alltoall(np.arange(3) + hvd.rank() * 10, splits=[1, 2], process_set=pair)
        assert found.tolist() == ([0, 20] if hvd.rank() == 0 else [1, 2, 21, 22])
        assert received.tolist() == ([1, 1] if hvd.rank() == 0 else [2, 2])
        with pytest.raises(ValueError, match="3 splits for 2 ranks"):
            hvd.alltoall(np.arange(3), splits=[1, 1, 1], process_set=pair)
    else:
        with pytest.raises(ValueError, match="Alltoall: Rank 1 is not a member"):
            hvd.alltoall(np.arange(2), process_set=pair)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("function", [hvd.alltoall, hvd.alltoall_async])
@pytest.mark.parametrize(
    ("splits", "text"),
    [
        (1, "splits=1 has 0 dimensions"),
        ([[1]], "splits=[[1]] has 2 dimensions"),
        ([[1], [2, 3]], "splits=[[1], [2, 3]]"),
        ([], "splits=[] is empty"),
        ([1.0], "splits=[1.0] holds float64 instead of int32"),
        ([True], "splits=[True] holds bool"),
        (["1"], "splits=['1'] holds"),
        ([None], "splits=[None] holds"),
        ([-1], "splits=[-1] holds a number that is negative"),
        ([2**31], "splits=[2147483648] holds a number that is negative or too large for int32"),
        ([2**70], "splits=[1180591620717411303424] holds"),
    ],
)
def test_splits_that_are_none(function, splits, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        function(np.ones(3), splits=splits)


LOCAL = {
    "the sum of splits, 4, is larger than the first dimension, 3": lambda: hvd.alltoall(np.ones(3), [2, 2], name="x"),
    "3 splits for 2 ranks": lambda: hvd.alltoall(np.ones(3), [1, 1, 1], name="x"),
    "1 splits for 2 ranks": lambda: hvd.alltoall(np.ones(3), [1], name="x"),
    "the first dimension, 3, is not divisible by 2 ranks: give splits": lambda: hvd.alltoall(np.ones(3), name="x"),
}


@on_ranks(2)
def test_local_errors_leave_the_peer_alone():
    for text, call in LOCAL.items():
        if hvd.rank() == 0:
            with pytest.raises(ValueError, match=text):
                call()
        assert hvd.alltoall([1, 2], name="x").tolist() == [hvd.rank() + 1] * 2
    if hvd.rank() == 0:  # without a name: the ranks still count alike
        for splits in ([2, 2], [1], None):
            with pytest.raises(ValueError, match="Alltoall"):
                hvd.alltoall(np.ones(3), splits)
    assert hvd.alltoall([1, 2]).tolist() == [hvd.rank() + 1] * 2
