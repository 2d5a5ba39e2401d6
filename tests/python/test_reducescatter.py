# SPDX-License-Identifier: Apache-2.0
"""reducescatter against the rank-order reference."""

import horovod.numpy as hvd
import ml_dtypes
import numpy as np
import pytest
from ranks import on_ranks
from reference import reduce, same_bits, scattered

SETS: list[hvd.ProcessSet] = []  # filled in on the ranks
TYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64"]
DTYPES = [*(np.dtype(name) for name in TYPES), np.dtype(ml_dtypes.bfloat16)]


def data(dtype, shape, rank):
    rng = np.random.default_rng(rank)
    if dtype.kind in "iu":
        return np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-5, 4, shape)).astype(dtype)


@on_ranks(2, 3, 4)
def test_bits_of_every_type_with_rows_that_do_not_come_out_even():
    for dtype in DTYPES:
        for shape in [(0,), (1,), (3,), (4, 3), (7, 2, 2), (5, 0), (1001,), (9, 30_000)]:
            everyone = [data(dtype, shape, rank) for rank in range(hvd.size())]
            for op, pre, post in [(hvd.Sum, 1.0, 1.0), (hvd.Average, 1.0, 1.0), (hvd.Average, 0.5, 3.0)]:
                expected = scattered(reduce(op, everyone, dtype, pre, post), hvd.size(), hvd.rank())
                factors = {"prescale_factor": pre, "postscale_factor": post}
                mine = everyone[hvd.rank()]
                assert same_bits(hvd.reducescatter(mine, op=op, name=f"{dtype}{shape}{op}", **factors), expected)
                assert same_bits(hvd.synchronize(hvd.reducescatter_async(mine, op=op, **factors)), expected)


@on_ranks(2, 3)
def test_the_default_is_an_average():
    found = hvd.reducescatter(np.full(hvd.size(), hvd.rank(), np.float64))
    assert found.tolist() == [sum(range(hvd.size())) / hvd.size()]


@on_ranks(2)
def test_compression():
    values = np.array([1.0, 1e-9, 3.3, 4.0])
    found = hvd.reducescatter(values, compression=hvd.Compression.fp16, op=hvd.Average)
    expected = values.astype(np.float16).astype(np.float64)
    assert same_bits(found, expected[2 * hvd.rank() : 2 * hvd.rank() + 2])
    (found,) = hvd.grouped_reducescatter([values], compression=hvd.Compression.fp16)
    assert same_bits(found, expected[2 * hvd.rank() : 2 * hvd.rank() + 2])


@on_ranks(3, sets=[[0, 2]])
def test_in_a_process_set():
    (pair,) = SETS
    if pair.included():
        found = hvd.reducescatter(np.arange(3) + hvd.rank(), op=hvd.Sum, process_set=pair)
        assert found.tolist() == ([2, 4] if hvd.rank() == 0 else [6])
    else:
        with pytest.raises(ValueError, match="Reducescatter: Rank 1 is not a member"):
            hvd.reducescatter(np.arange(3), process_set=pair)


@on_ranks(2)
def test_reductions_that_it_does_not_know():
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        for call in (hvd.reducescatter, lambda x, **more: hvd.grouped_reducescatter([x], **more)):
            with pytest.raises(hvd.HorovodInternalError, match="give Average or Sum"):
                call(np.ones(2), op=op, name="x")
    with pytest.raises(ValueError, match="op=17"):
        hvd.reducescatter(np.ones(2), op=17)
    with pytest.raises(ValueError, match="bool"):
        hvd.reducescatter([True, False], op=hvd.Sum)
    assert hvd.reducescatter(np.ones(2), op=hvd.Sum, name="x").tolist() == [2]
