# SPDX-License-Identifier: Apache-2.0
"""Compression.fp16 and .bf16 of NumPy arrays: the bits of casting, whoever casts; and one's own compressors."""

from __future__ import annotations

import sys

import horovod.numpy as hvd
import numpy as np
import pytest
from ranks import on_ranks
from reference import reduce, same_bits

BOTH = (hvd.Compression.fp16, hvd.Compression.bf16)


def narrowed(values: np.ndarray, compression: type) -> np.ndarray:
    """Return float32 or float64 rounded to the smaller type, in its own."""
    if compression is hvd.Compression.fp16:
        with np.errstate(over="ignore"):
            return values.astype("f2").astype(values.dtype)
    # To nearest even in the last of bfloat16's bits. Of float64, values are those that float32 has.
    bits = np.ascontiguousarray(values, "f4").view("u4").astype("u8")
    bits += 0x7FFF + (bits >> 16 & 1)
    return (bits >> 16 << 16).astype("u4").view("f4").astype(values.dtype)


def inputs(rank: int, count: int, dtype: str) -> np.ndarray:
    return np.random.default_rng([rank, count]).standard_normal(count).astype("f4").astype(dtype)


def expected(compression: type, op: int, arrays: list[np.ndarray], **scale: float) -> np.ndarray:
    small = [narrowed(one, compression).astype("f4") for one in arrays]
    return narrowed(reduce(op, small, np.dtype("f4"), **scale), compression).astype(arrays[0].dtype)


@on_ranks(2, 3)
def test_reductions_have_the_bits_of_casting():
    for compression in BOTH:
        for dtype in ("f4", "f8"):
            for count in (0, 1, 5, 1000, 100_003):
                arrays = [inputs(rank, count, dtype) for rank in range(hvd.size())]
                mine = arrays[hvd.rank()].copy()
                for op in (hvd.Sum, hvd.Average, hvd.Max):
                    name = f"{compression.__name__}.{dtype}.{count}.{op}"
                    found = hvd.allreduce(mine, name=name, op=op, compression=compression)
                    assert found.dtype == mine.dtype
                    assert same_bits(found, expected(compression, op, arrays)), name
                assert same_bits(mine, arrays[hvd.rank()])
                found = hvd.allreduce(
                    mine, op=hvd.Sum, compression=compression, prescale_factor=0.25, postscale_factor=3.0
                )
                assert same_bits(found, expected(compression, hvd.Sum, arrays, prescale=0.25, postscale=3.0))


@on_ranks(2)
def test_groups_compress_what_can_be():
    for compression in BOTH:
        lists = [[inputs(r, 7, "f4"), np.arange(3) + 70_001, inputs(r, 40_001, "f8")] for r in range(hvd.size())]
        found = hvd.grouped_allreduce(lists[hvd.rank()], op=hvd.Sum, compression=compression)
        assert same_bits(found[1], 2 * (np.arange(3) + 70_001))
        for i in (0, 2):
            assert same_bits(found[i], expected(compression, hvd.Sum, [one[i] for one in lists]))


def sent_bytes() -> int:
    return sum(hvd.counters()["peers"][1 - hvd.rank()]["sent_bytes"].values())


@on_ranks(2)
def test_half_of_the_bytes_travel():
    values = np.ones(1 << 20, "f4")
    sent = []
    for compression in (hvd.Compression.none, *BOTH):
        before = sent_bytes()
        hvd.allreduce(values, compression=compression)
        sent.append(sent_bytes() - before)
    assert sent[0] >= values.nbytes
    assert 1.9 < sent[0] / sent[1] < 2.1
    assert 1.9 < sent[0] / sent[2] < 2.1


@on_ranks(2)
def test_ranks_that_differ_are_told_so():
    compression = hvd.Compression.fp16 if hvd.rank() == 0 else hvd.Compression.none
    with pytest.raises(hvd.HorovodInternalError, match=r"Mismatched data types.*Compression counts"):
        hvd.allreduce(np.ones(4, "f4"), name="differs", compression=compression)
    assert hvd.allreduce(np.ones(4, "f4"), name="differs").tolist() == [1.0] * 4


@on_ranks(2)
def test_adasum_is_compressed_by_casting():
    found = hvd.allreduce(np.full(8, 1.0 + 2**-12, "f4"), op=hvd.Adasum, compression=hvd.Compression.fp16)
    assert found.dtype == np.float32
    assert found.tolist() == [1.0] * 8


@on_ranks(2)
def test_subclasses_compress_themselves():
    asked = []

    class Mine(hvd.Compression.fp16):
        @staticmethod
        def compress(tensor):
            asked.append(tensor.shape)
            return hvd.Compression.fp16.compress(tensor)

    assert hvd.allreduce(np.full(3, 1.5), op=hvd.Sum, compression=Mine).tolist() == [3.0] * 3
    assert hvd.grouped_allreduce([np.full(2, 1.5)], op=hvd.Sum, compression=Mine)[0].tolist() == [3.0] * 2
    assert asked == [(3,), (2,)]


@pytest.mark.usefixtures("engine")
def test_one_rank_rounds_as_many_do():
    values = inputs(0, 1001, "f8")
    for compression in BOTH:
        assert same_bits(hvd.allreduce(values, compression=compression), narrowed(values, compression))
    for dtype in ("f2", np.longdouble, "i8", "?"):
        one = np.array([1, 0, 1]).astype(dtype)
        found = hvd.allreduce(one, op=hvd.Max, compression=hvd.Compression.fp16)
        assert (found.dtype, found.tolist()) == (one.dtype, one.tolist())


def test_what_numpy_cannot_cast_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(NotImplementedError, match="install the package ml_dtypes"):
        hvd.Compression.bf16.compress(np.ones(2, "f4"))
    whole = np.arange(3)
    assert hvd.Compression.bf16.compress(whole)[1] is None


def test_bfloat16_is_sent_as_float16_if_asked():
    bfloat16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    small, context = hvd.Compression.fp16.compress(np.ones(2, bfloat16))
    assert (small.dtype, context) == (np.float16, bfloat16)
    assert hvd.Compression.fp16.decompress(small, context).dtype == bfloat16


def test_casts_of_bfloat16():
    pytest.importorskip("ml_dtypes")
    values = inputs(0, 100, "f4")
    small, context = hvd.Compression.bf16.compress(values)
    assert (small.dtype.name, context) == ("bfloat16", np.dtype("f4"))
    assert same_bits(hvd.Compression.bf16.decompress(small, context), narrowed(values, hvd.Compression.bf16))
