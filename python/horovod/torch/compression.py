# SPDX-License-Identifier: Apache-2.0
"""Smaller element types for data that is sent between ranks."""

from __future__ import annotations

from typing import Any

import torch

from horovod.common import abi
from horovod.common.arguments import show


class Compressor:
    """Changes tensors before they are sent, and back. A class of your own may be given as `compression=`."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor to send and what `decompress` needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor with its original type. Precision that compressing lost stays lost."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor itself."""
        return tensor


class _CastingCompressor(Compressor):
    dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        """Return the tensor in the smaller type, and its own. Whole numbers stay as they are."""
        if not tensor.dtype.is_floating_point:
            return tensor, None
        return tensor.to(cls.dtype), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: torch.dtype | None) -> torch.Tensor:
        """Return the tensor in its own type."""
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_CastingCompressor):
    """
    Sends floating-point tensors as float16: 11 bits of precision, up to 65504.

    Allreduces leave float32 and float64 to the library, which casts them on their way. Subclasses use `compress`.
    """

    dtype = torch.float16


class BF16Compressor(_CastingCompressor):
    """Sends floating-point tensors as bfloat16: 8 bits of precision, the range of float32. See FP16Compressor."""

    dtype = torch.bfloat16


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


def wire_of(compression: Any, reduce_op: int, dtype: torch.dtype) -> int:
    """Return the flag with which the library itself compresses what an allreduce sends; 0: `compress` has to."""
    if reduce_op == abi.ADASUM or dtype not in (torch.float32, torch.float64):
        return 0
    if compression is FP16Compressor:
        return abi.WIRE_FLOAT16
    return abi.WIRE_BFLOAT16 if compression is BF16Compressor else 0
