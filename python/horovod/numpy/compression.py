# SPDX-License-Identifier: Apache-2.0
"""Smaller element types for data that is sent between ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from horovod.common import abi
from horovod.common.arguments import show
from horovod.numpy.adapter import as_input, bfloat16


class NoneCompressor:
    """Leaves arrays as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the array to send and what `decompress` needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: np.ndarray, ctx: Any) -> np.ndarray:
        """Return the array in its first type."""
        return tensor


class _CastCompressor:
    """Sends floating-point arrays as a smaller type and leaves all others as they are."""

    @staticmethod
    def _smaller() -> np.dtype:
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> tuple[np.ndarray, np.dtype | None]:
        """Return the array to send and what `decompress` needs."""
        array = as_input(tensor)
        if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
            return array.astype(cls._smaller(), copy=False), array.dtype
        return array, None

    @staticmethod
    def decompress(tensor: np.ndarray, ctx: np.dtype | None) -> np.ndarray:
        """Return the array in its first type."""
        return tensor if ctx is None else tensor.astype(ctx)


class FP16Compressor(_CastCompressor):
    """
    Sends floating-point arrays as float16: 11 bits of precision, up to 65504. Integers stay as they are.

    `allreduce` and `grouped_allreduce` leave float32 and float64 to the library, which casts them on their way.
    """

    @staticmethod
    def _smaller() -> np.dtype:
        return np.dtype(np.float16)


class BF16Compressor(_CastCompressor):
    """
    Sends floating-point arrays as bfloat16: 8 bits of precision, the range of float32. Integers stay as they are.

    `allreduce` and `grouped_allreduce` leave float32 and float64 to the library, which casts them on their way. For all
    else NumPy needs the package ml_dtypes.
    """

    @staticmethod
    def _smaller() -> np.dtype:
        return bfloat16("use hvd.Compression.bf16 with allreduce and grouped_allreduce of float32 and float64 alone")


class Compression:
    """What `compression=` takes."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def checked_compression(compression: Any) -> Any:
    """Return an argument that can compress; TypeError for another."""
    if not hasattr(compression, "compress") or not hasattr(compression, "decompress"):
        allowed = "hvd.Compression.none, hvd.Compression.fp16 or hvd.Compression.bf16"
        raise TypeError(f"{show('compression', compression)} cannot compress: give {allowed}")
    return compression


def compressed(compression: Any, tensor: Any, reduce_op: int) -> tuple[np.ndarray, Any, int]:
    """Return what an allreduce sends, what `decompress` needs, and the flag with which the library casts it."""
    if compression is NoneCompressor:
        return as_input(tensor), None, 0
    if reduce_op != abi.ADASUM and (compression is FP16Compressor or compression is BF16Compressor):
        array = as_input(tensor)
        if array.dtype in (np.float32, np.float64):
            return array, None, abi.WIRE_FLOAT16 if compression is FP16Compressor else abi.WIRE_BFLOAT16
    small, context = checked_compression(compression).compress(tensor)
    return as_input(small), context, 0
