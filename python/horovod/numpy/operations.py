# SPDX-License-Identifier: Apache-2.0
"""What the library has to know of each operation on arrays. Names come last, by those who call."""

from __future__ import annotations

from typing import Any

import numpy as np

from horovod.common import abi
from horovod.common.arguments import root_rank as checked_root
from horovod.common.exceptions import HorovodUnsupportedError
from horovod.common.operation import Operation
from horovod.common.process_sets import ProcessSet, id_of
from horovod.numpy.adapter import dtype_code, place


def reduction(
    array: np.ndarray,
    output: np.ndarray,
    reduce_op: int,
    scale: tuple[float, float],
    process_set: ProcessSet,
    wire: int = 0,
) -> Operation:
    """Describe an allreduce. `output` may be `array`. `wire`: abi.WIRE_FLOAT16 or abi.WIRE_BFLOAT16."""
    identifier = id_of(process_set)
    if reduce_op == abi.ADASUM and identifier != 0:
        raise HorovodUnsupportedError(f"process_set={process_set}: hvd.Adasum works among all ranks only")
    dtype = dtype_code(array.dtype)
    source = place(array)
    target = source if output is array else place(output)
    return Operation(abi.ALLREDUCE, identifier, dtype, array.shape, source, target, reduce_op, 0, scale, flags=wire)


def gathering(array: np.ndarray, process_set: ProcessSet) -> Operation:
    """Describe an allgather."""
    return Operation(abi.ALLGATHER, id_of(process_set), dtype_code(array.dtype), array.shape, place(array))


def broadcasting(array: np.ndarray, output: np.ndarray, root_rank: Any, process_set: ProcessSet) -> Operation:
    """Describe a broadcast. `output` may be `array`."""
    identifier = id_of(process_set)
    dtype = dtype_code(array.dtype)
    root = checked_root(root_rank)
    source = place(array)
    target = source if output is array else place(output)
    return Operation(abi.BROADCAST, identifier, dtype, array.shape, source, target, abi.SUM, root)


def scattering(array: np.ndarray, reduce_op: int, scale: tuple[float, float], process_set: ProcessSet) -> Operation:
    """Describe a reducescatter."""
    if array.ndim == 0:
        raise ValueError(
            "reducescatter gives each rank some of the rows, and a scalar has none: give an array with dimensions"
        )
    identifier = id_of(process_set)
    dtype = dtype_code(array.dtype)
    return Operation(abi.REDUCESCATTER, identifier, dtype, array.shape, place(array), None, reduce_op, 0, scale)


def exchanging(array: np.ndarray, splits: tuple[int, ...] | None, process_set: ProcessSet) -> Operation:
    """Describe an alltoall."""
    identifier = id_of(process_set)
    dtype = dtype_code(array.dtype)
    return Operation(abi.ALLTOALL, identifier, dtype, array.shape, place(array), splits=splits)
