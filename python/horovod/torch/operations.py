# SPDX-License-Identifier: Apache-2.0
"""What the operations on tensors say to the library."""

from __future__ import annotations

from typing import Any

import torch

from horovod.common import abi
from horovod.common.arguments import root_rank as checked_root
from horovod.common.exceptions import HorovodUnsupportedError
from horovod.common.operation import Operation
from horovod.common.process_sets import ProcessSet, id_of
from horovod.torch.adapter import dtype_code, place


def reduction(
    tensor: torch.Tensor,
    output: torch.Tensor,
    reduce_op: int,
    scale: tuple[float, float],
    process_set: ProcessSet,
    wire: int = 0,
) -> Operation:
    """Describe an allreduce. `output` may be `tensor`. `wire`: abi.WIRE_FLOAT16 or abi.WIRE_BFLOAT16."""
    identifier = id_of(process_set)
    if reduce_op == abi.ADASUM and identifier != 0:
        raise HorovodUnsupportedError(f"process_set={process_set}: hvd.Adasum works among all ranks only")
    dtype, shape = dtype_code(tensor.dtype), tuple(tensor.shape)
    return Operation(
        abi.ALLREDUCE, identifier, dtype, shape, place(tensor), place(output), reduce_op, 0, scale, flags=wire
    )


def gathering(tensor: torch.Tensor, process_set: ProcessSet) -> Operation:
    """Describe an allgather."""
    return Operation(abi.ALLGATHER, id_of(process_set), dtype_code(tensor.dtype), tuple(tensor.shape), place(tensor))


def broadcasting(tensor: torch.Tensor, output: torch.Tensor, root_rank: Any, process_set: ProcessSet) -> Operation:
    """Describe a broadcast. `output` may be `tensor`."""
    identifier = id_of(process_set)
    dtype, shape, root = dtype_code(tensor.dtype), tuple(tensor.shape), checked_root(root_rank)
    return Operation(abi.BROADCAST, identifier, dtype, shape, place(tensor), place(output), abi.SUM, root)


def scattering(tensor: torch.Tensor, reduce_op: int, scale: tuple[float, float], process_set: ProcessSet) -> Operation:
    """Describe a reducescatter."""
    if tensor.dim() == 0:
        raise ValueError(
            "reducescatter gives each rank some of the rows, and a scalar has none: give a tensor with dimensions"
        )
    identifier = id_of(process_set)
    dtype, shape = dtype_code(tensor.dtype), tuple(tensor.shape)
    return Operation(abi.REDUCESCATTER, identifier, dtype, shape, place(tensor), None, reduce_op, 0, scale)


def exchanging(tensor: torch.Tensor, splits: tuple[int, ...] | None, process_set: ProcessSet) -> Operation:
    """Describe an alltoall."""
    identifier = id_of(process_set)
    dtype, shape = dtype_code(tensor.dtype), tuple(tensor.shape)
    return Operation(abi.ALLTOALL, identifier, dtype, shape, place(tensor), splits=splits)
