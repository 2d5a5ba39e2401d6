# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch as addresses, sizes, element types and shapes, and back. They are in the CPU's memory."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch

from horovod.common import abi, memory, request
from horovod.common.arguments import show
from horovod.common.exceptions import HorovodUnsupportedError

# A release of PyTorch has not every type.
_CODES: dict[torch.dtype, int] = {
    getattr(torch, name): code for name, code in abi.DTYPES.items() if hasattr(torch, name)
}
_LEAST_REUSED = 128 << 10  # from here on glibc's malloc may take new pages for every tensor
_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def dtype_code(dtype: torch.dtype) -> int:
    """Return the library's number of an element type; ValueError for one that it does not have."""
    code = _CODES.get(dtype)
    if code is None:
        raise ValueError(
            f"tensor has element type {dtype}, which is not supported; supported are {', '.join(abi.DTYPES)}"
        )
    return code


def _checked(tensor: Any, prefix: str = "") -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{prefix}{show('tensor', tensor)} is a {type(tensor).__name__}: give a torch.Tensor")
    if tensor.layout is not torch.strided:
        raise ValueError(
            f"{prefix}tensor has layout {tensor.layout}: give tensor.to_dense(), or use hvd.sparse_allreduce_async"
        )
    if not tensor.is_cpu:
        raise HorovodUnsupportedError(
            f"{prefix}tensor is on device {tensor.device}, and this release exchanges tensors in the CPU's memory "
            "only: give tensor.cpu()"
        )
    dtype_code(tensor.dtype)
    return tensor


def as_input(tensor: Any) -> torch.Tensor:
    """Return a tensor without history that the library can read: contiguous, no copy where it is already."""
    return _checked(tensor).detach().resolve_neg().contiguous()


def as_in_place(tensor: Any, function: str) -> torch.Tensor:
    """Return `tensor` itself if the library can write to it; ValueError if not."""
    prefix = f"{function} works in place: "
    _checked(tensor, prefix)
    if not tensor.is_contiguous():
        layout = f"shape {tuple(tensor.shape)} and strides {tensor.stride()}"
        raise ValueError(f"{prefix}tensor has {layout}; give tensor.contiguous(), or use the form without _")
    return tensor


def place(tensor: torch.Tensor) -> tuple[int, int]:
    """Return address and size in bytes."""
    return tensor.data_ptr(), tensor.numel() * tensor.element_size()


def _tensor_of(block: memory.Block, dtype: torch.dtype) -> torch.Tensor:
    array = (ctypes.c_char * block.bytes).from_address(block.address)
    array._owner = block  # the tensor owns the array, and the array the memory
    return torch.frombuffer(array, dtype=dtype)


def wrap(result: request.Result, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor over memory that the library allocated."""
    if result.block is None or result.block.bytes == 0:
        return torch.empty(result.shape, dtype=dtype)
    return _tensor_of(result.block, dtype).view(result.shape)


def new_output(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor like a contiguous one; a large one in memory that was the output of an earlier call."""
    size = tensor.numel() * tensor.element_size()
    if size < _LEAST_REUSED:
        return torch.empty_like(tensor)
    return _tensor_of(memory.allocate_output(size), tensor.dtype).view(tensor.shape)


def empty(*size: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """
    Return a tensor in memory that the ranks of this host share. Operations on it copy nothing, so they are fastest.

    Works before `init`; the tensor stays valid after `shutdown`. It may be used like any other tensor.

    >>> import horovod.torch as hvd
    >>> hvd.empty(2, 3).shape
    torch.Size([2, 3])
    """
    shape: Sequence[int] = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    dtype = dtype or torch.get_default_dtype()
    dtype_code(dtype)
    bytes_needed = math.prod(shape) * dtype.itemsize
    if bytes_needed <= 0:
        return torch.empty(shape, dtype=dtype)
    return _tensor_of(memory.allocate(bytes_needed), dtype).view(shape)


def same_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view in a type that ranks exchange: for operations that move elements and compute nothing."""
    if tensor.dtype in _CODES:
        return tensor
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return tensor.view(_SAME_SIZE[tensor.element_size()])
