# SPDX-License-Identifier: Apache-2.0
"""
Gradients of several parameters side by side in one piece of memory, which is reduced by one operation.

The memory is of the arena, so that ranks of a host reduce it without a copy. Each gradient is a view of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from horovod.common import abi, request
from horovod.common.operation import Slot
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.adapter import as_input, empty
from horovod.torch.compression import Compression, NoneCompressor, wire_of
from horovod.torch.operations import reduction
from horovod.torch.reducing import allreduce_async_

_ALIGNED = 64  # bytes at which a gradient begins
# Below this, more time goes into the operations than into the bytes.
_WANTED_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Reduction:
    """How gradients are reduced."""

    op: int = abi.AVERAGE
    scale: tuple[float, float] = (1.0, 1.0)
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    process_set: ProcessSet = global_process_set

    def wire(self, dtype: torch.dtype) -> int:
        """Return the flag with which the library itself compresses; 0: the compressor has to."""
        return wire_of(self.compression, self.op, dtype)

    def compresses(self, dtype: torch.dtype) -> bool:
        """Whether the compressor has to be asked."""
        return self.compression is not NoneCompressor and not self.wire(dtype)


class Member:
    """A parameter whose gradients are reduced."""

    __slots__ = ("name", "param", "left", "bucket", "view", "sparse_dims", "placed")

    def __init__(self, name: str, param: torch.Tensor, passes: int) -> None:
        self.name = name
        self.param = param
        self.left = passes  # backward passes until it is reduced
        self.bucket: Bucket | None = None
        self.view: torch.Tensor | None = None  # its gradient in the bucket
        self.sparse_dims = 0  # more than 0: it has sparse gradients and no bucket
        self.placed = False


def _elements(tensor: torch.Tensor) -> int:
    """Return the elements that a gradient takes, with those that are left free behind it."""
    step = max(_ALIGNED // tensor.element_size(), 1)
    return -(-tensor.numel() // step) * step


class Bucket:
    """
    Members whose gradients are reduced together.

    Behind the gradients are as many numbers: 1 where this rank had a gradient and 0 where not. Their sum tells whether
    any rank had one: a parameter without gradient on all ranks stays without.
    """

    def __init__(self, members: Sequence[Member], how: Reduction) -> None:
        self.members = members
        self.waiting = len(members)
        self.handle: int | None = None
        self._how = how
        first = members[0].param
        self._asks = how.compresses(first.dtype)
        sizes = [_elements(member.param) for member in members]
        flags = len(members) if how.op in (abi.AVERAGE, abi.SUM) and not self._asks else 0
        self._flat = _zeros(sum(sizes) + flags, first.dtype)
        self._flags = self._flat[sum(sizes) :] if flags else None
        self._absent: list[int] = []
        self._version = 0  # of the memory when the reduction began
        begin = 0
        for member, size in zip(members, sizes):
            part = self._flat[begin : begin + member.param.numel()]
            # In the order in which the parameter lies in memory, which may be that of channels_last.
            member.view = part.as_strided(member.param.shape, torch.empty_like(member.param, device="meta").stride())
            member.bucket, member.sparse_dims, member.placed = self, 0, True
            begin += size
        self._name = members[0].name if len(members) == 1 else f"{members[0].name} and {len(members) - 1} more"
        self._slot: Slot | None = None
        self._small: tuple[torch.Tensor, Any] | None = None
        if not self._asks:
            wire = how.wire(first.dtype)
            operation = reduction(self._flat, self._flat, how.op, how.scale, how.process_set, wire)
            self._slot = request.prepare(operation.named("allreduce", self._name))

    def start(self) -> None:
        """Take the members' gradients and start the reduction."""
        self._collect()
        self._version = self._flat._version
        if self._slot is not None:
            address = self._flat.data_ptr()
            self.handle = request.submit_prepared(self._slot, address, address, (self._flat,), _nothing)
            return
        how, view = self._how, self.members[0].view
        small, context = how.compression.compress(view)
        small = as_input(small)
        self._small = (small, context)
        self.handle = allreduce_async_(small, None, self._name, how.op, *how.scale, how.process_set)

    def _collect(self) -> None:
        views, gradients = [], []
        self._absent.clear()
        for i, member in enumerate(self.members):
            gradient, view = member.param.grad, member.view
            if gradient is view:
                continue
            if gradient is None:
                view.zero_()  # type: ignore[union-attr]
                self._absent.append(i)
                continue
            if gradient.is_sparse:
                gradient = gradient.to_dense()
            views.append(view)
            gradients.append(gradient.detach() if gradient.requires_grad else gradient)
            member.param.grad = view
        if views:
            torch._foreach_copy_(views, gradients)
        if self._flags is not None:
            self._flags.fill_(1.0)
            for i in self._absent:
                self._flags[i] = 0.0

    def finish(self) -> None:
        """Wait for the reduction, and give the members their gradients."""
        handle, self.handle = self.handle, None
        self.waiting = len(self.members)
        request.synchronize(handle)  # type: ignore[arg-type]
        self._check_unchanged()
        if self._small is not None:
            small, context = self._small
            self._small = None
            self.members[0].view.copy_(self._how.compression.decompress(small, context))  # type: ignore[union-attr]
        for i in self._absent:
            if self._flags is None or float(self._flags[i]) != 0.0:
                self.members[i].param.grad = self.members[i].view

    def _check_unchanged(self) -> None:
        """Raise AssertionError if the program wrote to a gradient during the reduction: ranks would drift apart."""
        # PyTorch counts its writes to a tensor and to all views of it; the engine's own are not among them.
        changed = self._flat._version != self._version or any(
            member.param.grad is not None and member.param.grad is not member.view for member in self.members
        )
        if changed:
            raise AssertionError(
                f"a gradient of {self._name} was changed after loss.backward(), while the ranks reduced it: call "
                "optimizer.synchronize() before you clip or change gradients"
            )

    def leave(self) -> None:
        """Ask no more for a reduction in flight."""
        handle, self.handle = self.handle, None
        self.waiting = len(self.members)
        if handle is not None:
            request.leave(handle)


def _nothing(_: Any) -> None:
    return None


def _zeros(elements: int, dtype: torch.dtype) -> torch.Tensor:
    try:
        return empty(elements, dtype=dtype)
    except MemoryError:  # the arena is full: the engine copies instead
        return torch.zeros(elements, dtype=dtype)


def divide(members: Sequence[Member], groups: Sequence[Sequence[Member]], how: Reduction) -> list[list[Member]]:
    """
    Return which members share a bucket: those of a group; the others in the order in which backward reaches them.

    A bucket holds gradients of one type. A compressor of the user's own sees each gradient alone.
    """
    buckets: list[list[Member]] = []
    wanted = set(map(id, members))
    for group in groups:
        by_type: dict[torch.dtype, list[Member]] = {}
        for member in group:
            if id(member) in wanted:
                wanted.discard(id(member))
                by_type.setdefault(member.param.dtype, []).append(member)
        buckets += by_type.values()
    open_ones: dict[torch.dtype, list[Member]] = {}
    for member in reversed(members):
        if id(member) not in wanted:
            continue
        dtype = member.param.dtype
        bucket = open_ones.get(dtype)
        if bucket is None:
            bucket = open_ones[dtype] = []
            buckets.append(bucket)
        bucket.append(member)
        if sum(one.param.numel() for one in bucket) * dtype.itemsize >= _WANTED_BYTES:
            del open_ones[dtype]
    return [
        part
        for bucket in buckets
        for part in ([[one] for one in bucket] if how.compresses(bucket[0].param.dtype) else [bucket])
    ]
