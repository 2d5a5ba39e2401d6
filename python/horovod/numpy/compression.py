# SPDX-License-Identifier: Apache-2.0
"""Smaller element types for the way between ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from horovod.common.arguments import show
from horovod.numpy.adapter import as_input


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


class FP16Compressor:
    """Sends floating-point arrays as float16; integers stay as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[np.ndarray, np.dtype | None]:
        """Return the array to send and what `decompress` needs."""
        array = as_input(tensor)
        if array.dtype.name == "bfloat16" or array.dtype.kind == "f":
            return array.astype(np.float16), array.dtype
        return array, None

    @staticmethod
    def decompress(tensor: np.ndarray, ctx: np.dtype | None) -> np.ndarray:
        """Return the array in its first type."""
        return tensor if ctx is None else tensor.astype(ctx)


class Compression:
    """What `compression=` takes."""

    none = NoneCompressor
    fp16 = FP16Compressor


def checked_compression(compression: Any) -> Any:
    """Return an argument that can compress; TypeError for another."""
    if not hasattr(compression, "compress") or not hasattr(compression, "decompress"):
        allowed = "hvd.Compression.none or hvd.Compression.fp16"
        raise TypeError(f"{show('compression', compression)} cannot compress: give {allowed}")
    return compression
