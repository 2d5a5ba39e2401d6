# SPDX-License-Identifier: Apache-2.0
"""Smaller element types for data that is sent between ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common import abi
from horovod.common.arguments import show


class Compressor:
    """Changes tensors before they are sent, and back. A class of your own may be given as `compression=`."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Return the tensor to send and what `decompress` needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Return the tensor with its original type. Precision that compressing lost stays lost."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Return the tensor itself."""
        return tensor


class _CastingCompressor(Compressor):
    dtype: tf.DType

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, tf.DType | None]:
        """Return the tensor in the smaller type, and its own. Whole numbers stay as they are."""
        if not tensor.dtype.is_floating:
            return tensor, None
        return tf.cast(tensor, cls.dtype), tensor.dtype

    @classmethod
    def decompress(cls, tensor: tf.Tensor, ctx: tf.DType | None) -> tf.Tensor:
        """Return the tensor in its own type."""
        return tensor if ctx is None else tf.cast(tensor, ctx)


class FP16Compressor(_CastingCompressor):
    """
    Sends floating-point tensors as float16: 11 bits of precision, up to 65504.

    Allreduces leave float32 and float64 to the library, which casts them on their way. Subclasses use `compress`.
    """

    dtype = tf.float16


class BF16Compressor(_CastingCompressor):
    """Sends floating-point tensors as bfloat16: 8 bits of precision, the range of float32. See FP16Compressor."""

    dtype = tf.bfloat16


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


def wire_of(compression: Any, reduce_op: int) -> int:
    """Return the flag with which the library itself compresses what an allreduce sends; 0: `compress` has to."""
    if reduce_op == abi.ADASUM:
        return 0
    if compression is FP16Compressor:
        return abi.WIRE_FLOAT16
    return abi.WIRE_BFLOAT16 if compression is BF16Compressor else 0


def compressed(compression: Any, wire: int, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """Return what an allreduce with the flag `wire` is given, and what `decompress` needs."""
    if wire and tensor.dtype in (tf.float32, tf.float64):
        return tensor, None
    return compression.compress(tensor)
