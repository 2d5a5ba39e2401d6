# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays as addresses, sizes, element types and shapes, and back."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from horovod.common import abi, memory, request

_CODES: dict[np.dtype, int] = {np.dtype(name): code for name, code in abi.DTYPES.items() if name != "bfloat16"}


def dtype_code(dtype: np.dtype) -> int:
    """Return the library's number of an element type; ValueError for one that it does not have."""
    code = _CODES.get(dtype)
    if code is None:
        # bfloat16 is not NumPy's own: whichever package defines it is recognised by the name.
        if dtype.name != "bfloat16":
            raise ValueError(f"element type {dtype} is not supported; supported are {', '.join(abi.DTYPES)}")
        code = _CODES[dtype] = abi.DTYPES["bfloat16"]
    return code


def as_input(tensor: Any) -> np.ndarray:
    """Return an array that the library can read: C order, native bytes, no copy where it is one already."""
    array = np.asarray(tensor)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return array


def as_in_place(tensor: Any, function: str) -> np.ndarray:
    """Return `tensor` itself if the library can write to it; ValueError if not."""
    if not isinstance(tensor, np.ndarray):
        raise ValueError(f"{function} works in place and needs a NumPy array, not {type(tensor).__name__}")
    flags = tensor.flags
    if not flags.writeable:
        raise ValueError(f"{function} works in place, but the array is read-only")
    if not flags.c_contiguous:
        raise ValueError(f"{function} works in place and needs a contiguous array in C order; use the form without _")
    if not tensor.dtype.isnative:
        raise ValueError(f"{function} works in place and needs native byte order")
    return tensor


def place(array: np.ndarray) -> tuple[int, int]:
    """Return address and size in bytes."""
    size = array.nbytes
    try:
        # Four times as fast as the array interface, but only for memory that may be written and is not empty.
        return ctypes.addressof(ctypes.c_char.from_buffer(array)), size
    except (TypeError, ValueError, BufferError):
        return array.__array_interface__["data"][0], size


def wrap(result: request.Result, dtype: np.dtype) -> np.ndarray:
    """Return an array over memory that the library allocated."""
    block, shape = result
    if block is None:
        return np.empty(shape, dtype)
    return np.asarray(block).view(dtype).reshape(shape)


def empty(shape: int | tuple[int, ...], dtype: Any = float) -> np.ndarray:
    """
    Return an array in memory that the ranks of this host share. Operations on it copy nothing, so they are fastest.

    Works before `init`; the array stays valid after `shutdown`. It may be used like any other array.

    >>> import horovod.numpy as hvd
    >>> hvd.empty((2, 3), "float32").shape
    (2, 3)
    """
    dtype = np.dtype(dtype)
    dtype_code(dtype)
    template = np.empty(0, dtype)  # lets NumPy judge the shape's form
    shape = np.broadcast_shapes(shape)
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return np.empty(shape, dtype)
    return np.asarray(memory.allocate(count * template.itemsize)).view(dtype).reshape(shape)
