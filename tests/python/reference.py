# SPDX-License-Identifier: Apache-2.0
"""What a reduction must give, bit for bit: rank order, in the accumulation type, rounded once."""

from __future__ import annotations

from collections.abc import Sequence

import horovod.numpy as hvd
import numpy as np


def accumulator(dtype: np.dtype) -> np.dtype:
    """Half types are summed in float32; everything else in itself."""
    return np.dtype(np.float32) if dtype.name in ("float16", "bfloat16") else dtype


def scale(values: np.ndarray, factor: float) -> np.ndarray:
    if factor == 1.0:
        return values
    if values.dtype.kind == "f":
        return values * values.dtype.type(factor)
    # Integers: multiply in double, truncate toward zero, stay in range.
    info = np.iinfo(values.dtype)
    scaled = np.trunc(values.astype(np.float64) * factor)
    inside = (scaled >= float(info.min)) & (scaled < float(info.max))
    result = np.where(scaled < 0, info.min, info.max).astype(values.dtype)
    result[inside] = scaled[inside].astype(values.dtype)
    return result


def smaller_or_larger(op: int, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """NaN wins, the first one met; equal values keep the left one (its zero may have the other sign)."""
    better = right < left if op == hvd.Min else right > left
    if left.dtype.kind != "f":
        return np.where(better, right, left)
    return np.where(np.isnan(left), left, np.where(np.isnan(right) | better, right, left))


def combine(op: int, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    if op in (hvd.Average, hvd.Sum):
        return left + right
    if op == hvd.Product:
        return left * right
    if left.dtype == bool:
        return left & right if op == hvd.Min else left | right
    return smaller_or_larger(op, left, right)


def reduce(
    op: int, inputs: Sequence[np.ndarray], dtype: np.dtype, prescale: float = 1.0, postscale: float = 1.0
) -> np.ndarray:
    """Reduce arrays that are given in rank order, in `dtype` or already in its accumulation type."""
    wide = accumulator(dtype)
    with np.errstate(all="ignore"):
        total = scale(inputs[0].astype(wide, copy=False), prescale)
        for array in inputs[1:]:
            total = combine(op, total, scale(array.astype(wide, copy=False), prescale))
        factor = postscale / len(inputs) if op == hvd.Average else postscale
        return np.asarray(scale(total, factor)).astype(dtype, order="C")


def scattered(total: np.ndarray, ranks: int, rank: int) -> np.ndarray:
    """Return the rows of one rank after a reducescatter: the first ranks have the rows that are left over."""
    rows, more = divmod(total.shape[0], ranks)
    begin = rank * rows + min(rank, more)
    return total[begin : begin + rows + (rank < more)]


# How far an Adasum may be from the reference, in parts of the largest input: its dot products are sums of parts.
ADASUM_TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-13}


def adasum(inputs: Sequence[np.ndarray], dtype: np.dtype, prescale: float = 1.0, postscale: float = 1.0) -> np.ndarray:
    """Reduce arrays in rank order: neighbours first, then pairs of those at distance 2, 4, ..."""
    held = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    vectors = [scale(one.astype(held).reshape(-1), prescale) for one in inputs]
    distance = 1
    while distance < len(vectors):
        for left in range(0, len(vectors) - distance, 2 * distance):
            vectors[left] = _adasum_pair(vectors[left], vectors[left + distance])
        distance *= 2
    return scale(vectors[0], postscale).astype(dtype).reshape(inputs[0].shape)


def _adasum_pair(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    dot, norm_a, norm_b = wide_a @ wide_b, wide_a @ wide_a, wide_b @ wide_b
    factor_a = 1.0 - dot / (2.0 * norm_a) if norm_a else 1.0
    factor_b = 1.0 - dot / (2.0 * norm_b) if norm_b else 1.0
    return (factor_a * wide_a + factor_b * wide_b).astype(a.dtype)


def near(found: np.ndarray, expected: np.ndarray, inputs: Sequence[np.ndarray]) -> bool:
    """Whether an Adasum is right."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    largest = max((float(np.max(np.abs(one.astype(np.float64)), initial=0.0)) for one in inputs), default=0.0)
    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    return bool(np.all(difference <= ADASUM_TOLERANCE[found.dtype.name] * max(largest, 1e-30)))


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether two arrays are equal bit for bit. Any NaN equals any other: which of two NaNs survives a sum is free."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.name == "bfloat16" or left.dtype.kind == "f":
        unsigned = np.dtype(f"u{left.itemsize}")
        equal = left.view(unsigned) == right.view(unsigned) if left.ndim else left.tobytes() == right.tobytes()
        if np.all(equal):
            return True
        return bool(np.all(equal | (np.isnan(left) & np.isnan(right))))
    return bool(np.array_equal(left, right))
