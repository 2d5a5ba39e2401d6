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
