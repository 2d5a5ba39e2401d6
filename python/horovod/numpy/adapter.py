# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays as addresses, sizes, element types and shapes, and back."""

from __future__ import annotations

import ctypes
import importlib
import math
from typing import Any

import numpy as np

from horovod.common import abi, memory, request
from horovod.common.arguments import show
from horovod.common.exceptions import HorovodUnsupportedError

_CODES: dict[np.dtype, int] = {np.dtype(name): code for name, code in abi.DTYPES.items() if name != "bfloat16"}
_LEAST_REUSED = 128 << 10  # from here on glibc's malloc may take new pages for every array
_ELSE = "or use the form without _"


def dtype_code(dtype: np.dtype, argument: str = "tensor has element type") -> int:
    """Return the library's number of an element type; ValueError for one that it does not have."""
    code = _CODES.get(dtype)
    if code is None:
        # bfloat16 is not NumPy's own: whichever package defines it is recognised by the name.
        if dtype.name != "bfloat16":
            raise ValueError(f"{argument} {dtype}, which is not supported; supported are {', '.join(abi.DTYPES)}")
        code = _CODES[dtype] = abi.DTYPES["bfloat16"]
    return code


def bfloat16(instead: str) -> np.dtype:
    """Return bfloat16 of the package ml_dtypes; where there is none, the error says what to do `instead`."""
    try:
        return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ImportError:
        raise HorovodUnsupportedError(
            f"NumPy has no bfloat16 of its own: install the package ml_dtypes, or {instead}"
        ) from None


def as_input(tensor: Any) -> np.ndarray:
    """Return an array that the library can read: C order, native bytes, no copy where it is one already."""
    if type(tensor) is not np.ndarray:
        _refuse_mask(tensor, "")
    try:
        array = np.asarray(tensor)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{show('tensor', tensor)} cannot be made an array: {error}") from None
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return array


def as_in_place(tensor: Any, function: str) -> np.ndarray:
    """Return `tensor` itself if the library can write to it; ValueError if not."""
    if type(tensor) is np.ndarray:
        flags = tensor.flags
        if flags.writeable and flags.c_contiguous and tensor.dtype.isnative:
            return tensor
    prefix = f"{function} works in place: "
    if not isinstance(tensor, np.ndarray):
        kind = type(tensor).__name__
        raise ValueError(f"{prefix}{show('tensor', tensor)} is a {kind}; give a NumPy array, {_ELSE}")
    _refuse_mask(tensor, prefix)
    if not tensor.flags.writeable:
        raise ValueError(f"{prefix}tensor is read-only; give a copy, {_ELSE}")
    if not tensor.flags.c_contiguous:
        layout = f"shape {tensor.shape} and strides {tensor.strides}"
        raise ValueError(f"{prefix}tensor has {layout}; give a contiguous array in C order, {_ELSE}")
    if not tensor.dtype.isnative:
        raise ValueError(f"{prefix}tensor has element type {tensor.dtype}; give native byte order, {_ELSE}")
    return tensor


def _refuse_mask(tensor: Any, prefix: str) -> None:
    if isinstance(tensor, np.ma.MaskedArray):
        raise ValueError(f"{prefix}tensor is a masked array, and the mask would be lost: give tensor.filled(...)")


def place(array: np.ndarray) -> tuple[int, int]:
    """Return address and size in bytes."""
    size = array.nbytes
    try:
        # Four times as fast as the array interface, but only for memory that may be written and is not empty.
        return ctypes.addressof(ctypes.c_char.from_buffer(array)), size
    except (TypeError, ValueError, BufferError):
        return array.__array_interface__["data"][0], size


def new_output(array: np.ndarray) -> np.ndarray:
    """Return an array like `array` for a result; a large one in memory that was the output of an earlier call."""
    if array.nbytes < _LEAST_REUSED:
        return np.empty(array.shape, array.dtype)
    return np.asarray(memory.allocate_output(array.nbytes)).view(array.dtype).reshape(array.shape)


def wrap(result: request.Result, dtype: np.dtype) -> np.ndarray:
    """Return an array over memory that the library allocated."""
    if result.block is None:
        return np.empty(result.shape, dtype)
    return np.asarray(result.block).view(dtype).reshape(result.shape)


def empty(shape: int | tuple[int, ...], dtype: Any = float) -> np.ndarray:
    """
    Return an array in memory that the ranks of this host share. Operations on it copy nothing, so they are fastest.

    Works before `init`; the array stays valid after `shutdown`. It may be used like any other array.

    >>> import horovod.numpy as hvd
    >>> hvd.empty((2, 3), "float32").shape
    (2, 3)
    """
    try:
        dtype = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"{show('dtype', dtype)} is no element type: {error}") from None
    dtype_code(dtype, "dtype is")
    try:
        dimensions = np.broadcast_shapes(shape)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{show('shape', shape)} is no shape: {error}") from None
    size = math.prod(dimensions) * dtype.itemsize
    if size >= 2**63:
        raise ValueError(f"{show('shape', shape)} of {dtype} has more bytes than memory can have")
    if size == 0:
        return np.empty(dimensions, dtype)
    return np.asarray(memory.allocate(size)).view(dtype).reshape(dimensions)
