# SPDX-License-Identifier: Apache-2.0
"""What a program says of a collective operation, and running it on arrays that exist."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from horovod.common import abi, request
from horovod.common.barrier import barrier
from horovod.common.exceptions import HorovodUnsupportedError
from horovod.common.operation import Operation, name_group
from horovod.common.process_sets import ProcessSet
from horovod.jax.numbering import Numbering
from horovod.numpy.adapter import as_input, new_output, wrap
from horovod.numpy.operations import broadcasting, exchanging, gathering, reduction, scattering

CODES = {
    "allreduce": abi.ALLREDUCE,
    "allgather": abi.ALLGATHER,
    "broadcast": abi.BROADCAST,
    "alltoall": abi.ALLTOALL,
    "reducescatter": abi.REDUCESCATTER,
    "barrier": abi.BARRIER,
}


@dataclasses.dataclass(frozen=True)
class Call:
    """What a program says of an operation; equal on all ranks but for the rank. Programs with equal ones are equal."""

    kind: str
    name: str | None
    process_set: ProcessSet
    numbering: Numbering  # when the program was made
    grouped: bool = False
    ordered: bool = False
    only_root: bool = False  # of an allreduce: the result on other ranks than root_rank is zeros
    reduce_op: int = abi.SUM
    scale: tuple[float, float] = (1.0, 1.0)
    root_rank: int = 0
    flags: int = 0

    @property
    def wire_kind(self) -> str:
        """The kind as names have it."""
        return f"grouped_{self.kind}" if self.grouped else self.kind

    @property
    def needs_numbering(self) -> bool:
        """Whether the program is right only for the ranks for which it was made."""
        return self.numbering.set_id != 0 or self.kind in ("allgather", "reducescatter")

    def derived(self, letter: str) -> Call:
        """Return the same call with another name, for the derivative of this one."""
        return dataclasses.replace(self, name=None if self.name is None else f"{self.name}.{letter}")


def as_array(tensor: Any, call: Call) -> np.ndarray:
    """Return an array of JAX as one that the library can read."""
    devices = tensor.devices() if isinstance(tensor, jax.Array) else ()
    if len(devices) > 1:
        raise HorovodUnsupportedError(
            f"{call.kind}: the array is on {len(devices)} devices of this process, and each rank gives arrays of one "
            "device: start a rank per device, or give one shard of the array"
        )
    return as_input(tensor)


def run(tensors: Sequence[Any], call: Call) -> list[Any]:
    """Run the operation on arrays that exist, and return the results. This is what JAX does outside of jax.jit."""
    if call.needs_numbering or call.only_root:
        call.numbering.check(call.wire_kind)
    if call.kind == "barrier":
        barrier(call.process_set)
        return list(tensors)
    arrays = [as_array(tensor, call) for tensor in tensors]
    outputs = [new_output(array) for array in arrays] if call.kind in ("allreduce", "broadcast") else arrays
    operations = [_operation(array, output, call) for array, output in zip(arrays, outputs)]
    if call.grouped:
        name_group(operations, call.wire_kind, call.name)
        results = request.run_group(operations, (arrays, outputs))
    else:
        results = [request.run(operations[0].named(call.wire_kind, call.name), (arrays, outputs))]
    if call.kind not in ("allreduce", "broadcast"):
        outputs = [wrap(result, array.dtype) for result, array in zip(results, arrays)]
    if call.only_root and call.numbering.rank != call.root_rank:
        outputs = [np.zeros_like(output) for output in outputs]
    return [_like(tensor, output) for tensor, output in zip(tensors, outputs)]


def _operation(array: np.ndarray, output: np.ndarray, call: Call) -> Operation:
    if call.kind == "allreduce":
        return reduction(array, output, call.reduce_op, call.scale, call.process_set, call.flags)
    if call.kind == "broadcast":
        return broadcasting(array, output, call.root_rank, call.process_set)
    if call.kind == "reducescatter":
        return scattering(array, call.reduce_op, call.scale, call.process_set)
    if call.kind == "alltoall":
        return exchanging(array, None, call.process_set)
    return gathering(array, call.process_set)


def _like(tensor: Any, output: np.ndarray) -> jax.Array:
    """Return an output as an array of JAX, on the device of the input."""
    return jax.device_put(output, next(iter(tensor.devices())) if isinstance(tensor, jax.Array) else None)
