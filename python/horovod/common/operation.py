# SPDX-License-Identifier: Apache-2.0
"""
What is to be done, as a program describes it, and the request that the library reads.

Thread safety: an Operation belongs to one thread; slots are kept by thread.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

from horovod.common import abi, names

NOWHERE = (None, 0)  # an output that the library allocates
_KEPT = 1024  # slots of a thread


class Operation:
    """
    What is to be done, equal on all ranks but for the addresses. `target` None: the library allocates the output.

    It gets its name last, by `named` or `name_group`: a number of an unnamed one is used up only when all else is good.
    """

    __slots__ = (
        "op",
        "name",
        "dtype",
        "shape",
        "process_set",
        "source",
        "target",
        "reduce_op",
        "root_rank",
        "scale",
        "splits",
        "flags",
    )

    def __init__(
        self,
        op: int,
        process_set: int,
        dtype: int = 0,
        shape: tuple[int, ...] = (0,),
        source: tuple[int, int] = (0, 0),
        target: tuple[int, int] | None = None,
        reduce_op: int = abi.SUM,
        root_rank: int = 0,
        scale: tuple[float, float] = (1.0, 1.0),
        splits: tuple[int, ...] | None = None,
        name: bytes = b"",
        flags: int = 0,
    ) -> None:
        self.op = op
        self.name = name
        self.process_set = process_set
        self.dtype = dtype
        self.shape = shape
        self.source = source
        self.target = target
        self.reduce_op = reduce_op
        self.root_rank = root_rank
        self.scale = scale
        self.splits = splits
        self.flags = flags

    def named(self, kind: str, name: str | None) -> Operation:
        """Give it the name that all ranks must give."""
        self.name = names.wire_name(kind, name, self.process_set)
        return self

    def description(self) -> tuple[Any, ...]:
        """All but the name and the addresses: many operations have it alike."""
        return (
            self.shape,
            self.dtype,
            self.op,
            self.reduce_op,
            self.scale,
            self.process_set,
            self.root_rank,
            self.splits,
            self.flags,
        )

    def describe(self, request: abi.Request) -> tuple[ctypes.Array | None, ...]:
        """Fill in what `description` has. Returns what must live as long as the request."""
        shape = (ctypes.c_int64 * max(len(self.shape), 1))(*self.shape)
        splits = None
        request.op = self.op
        request.process_set = self.process_set
        request.dtype = self.dtype
        request.ndim = len(self.shape)
        request.shape = ctypes.addressof(shape)
        request.reduce_op = self.reduce_op
        request.root_rank = self.root_rank
        request.prescale, request.postscale = self.scale
        request.flags = self.flags
        if self.splits is not None:
            splits = (ctypes.c_int32 * len(self.splits))(*self.splits)
            request.splits, request.nsplits = ctypes.addressof(splits), len(self.splits)
        return shape, splits


def name_group(operations: Sequence[Operation], kind: str, name: str | None) -> Sequence[Operation]:
    """Name the members of a group, which are of one process set and at least one."""
    base = names.wire_name(kind, name, operations[0].process_set)
    for number, operation in enumerate(operations, start=1):
        operation.name = b"%s_%dof%d" % (base, number, len(operations))
    return operations


class Slot:
    """
    A request with its parts, used again by the thread that made it: making one costs more than a small operation.

    But for the name and the addresses it is filled in once.
    """

    __slots__ = ("request", "request_ref", "input", "output", "result", "result_ref", "handle", "handle_ref", "arrays")

    def __init__(self, operation: Operation) -> None:
        self.request = abi.Request(struct_size=ctypes.sizeof(abi.Request))
        self.request_ref = ctypes.byref(self.request)
        self.input = self.request.input  # views, not copies
        self.output = self.request.output
        self.result = abi.Output(struct_size=ctypes.sizeof(abi.Output))
        self.result_ref = ctypes.byref(self.result)
        self.handle = ctypes.c_uint64()
        self.handle_ref = ctypes.byref(self.handle)
        self.arrays = operation.describe(self.request)


class _Slots(threading.local):
    def __init__(self) -> None:
        # By what is to be done. Taken out while in use: a signal handler may run an operation inside another one.
        self.free: dict[tuple[Any, ...], Slot] = {}


_slots = _Slots()


def take_slot(operation: Operation, description: tuple[Any, ...]) -> Slot:
    """Return a request of that description, with the operation's name and addresses."""
    slot = _slots.free.pop(description, None) or Slot(operation)
    slot.request.name = operation.name
    source, target = slot.input, slot.output
    source.data, source.bytes = operation.source
    target.data, target.bytes = operation.target or NOWHERE
    slot.handle.value = 0
    return slot


def give_back(slot: Slot, description: tuple[Any, ...]) -> None:
    """Keep a slot for the next operation of that description."""
    slots = _slots.free
    if len(slots) >= _KEPT:
        slots.clear()
    slots[description] = slot
