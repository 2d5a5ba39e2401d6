# SPDX-License-Identifier: Apache-2.0
"""
Reduces the gradients of a model's parameters while backward still computes others.

A hook of each parameter counts its backward passes. When the last gradient of a bucket is there, the bucket's reduction
starts; `synchronize` starts what is left and waits for all. In the first step the ranks agree which parameters have
sparse gradients before anything is reduced, so that step does not overlap.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from typing import Any, Callable

import torch

from horovod.common import abi, repeated
from horovod.torch.buckets import Bucket, Member, Reduction, divide
from horovod.torch.compiling import eager
from horovod.torch.reducing import allreduce
from horovod.torch.sparse import sparse_allreduce_async

_NO_GRADIENT, _DENSE, _SPARSE = 0, 1, 2  # plus the sparse dimensions


class Reducer:
    """
    The gradients of some parameters.

    Thread safety: hooks come from the thread that runs backward; the rest is for one thread.
    """

    def __init__(self, how: Reduction, passes: int = 1, started: Callable[[], None] | None = None) -> None:
        self.how = how
        self.enabled = True
        self.synchronized = False  # the gradients are reduced, and none has come since
        self.dirty = False  # gradients have come that are not reduced
        self.passes = passes
        self.members: list[Member] = []
        self._groups: list[list[Member]] = []
        self._frozen: list[Member] = []
        self._buckets: list[Bucket] = []
        self._sparse: list[Member] = []
        self._life = repeated.life()
        self._started = started  # called when the first gradient of a step has come
        self._hooks: list[Any] = []
        weakref.finalize(self, _remove, self._hooks)

    def add(self, named: Sequence[tuple[str, torch.Tensor]], groups: Sequence[Sequence[torch.Tensor]] = ()) -> None:
        """Add parameters. Those that need no gradient are added once they do."""
        members = {id(param): Member(name, param, self.passes) for name, param in named}
        self._groups += [[members[id(param)] for param in group if id(param) in members] for group in groups]
        self._frozen += members.values()
        self._thaw()

    def _thaw(self) -> None:
        for member in [member for member in self._frozen if member.param.requires_grad]:
            self.members.append(member)
            self._hooks.append(member.param.register_post_accumulate_grad_hook(self._hook(member)))
        self._frozen = [member for member in self._frozen if not member.param.requires_grad]

    def _hook(self, member: Member) -> Callable[[torch.Tensor], None]:
        own = weakref.ref(self)

        @eager
        def hook(_: torch.Tensor) -> None:
            reducer = own()
            if reducer is not None and reducer.enabled:
                reducer._arrived(member)

        return hook

    def _arrived(self, member: Member) -> None:
        member.left -= 1
        if member.left > 0:
            return
        if member.left < 0:
            raise AssertionError(
                f"the gradient of {member.name} was computed more often than backward_passes_per_step={self.passes} "
                "before step(): raise backward_passes_per_step, or call step() or synchronize() after each backward(); "
                "with torch.utils.checkpoint give use_reentrant=False"
            )
        if not self.dirty:
            self.dirty, self.synchronized = True, False
            if self._started is not None:
                self._started()
        bucket = member.bucket
        if bucket is not None and self._life == repeated.life():
            bucket.waiting -= 1
            if bucket.waiting == 0 and bucket.handle is None:
                bucket.start()

    def synchronize(self) -> None:
        """Reduce what is not reduced yet and wait for all; on an error nothing is in flight afterwards."""
        if self.synchronized:
            return
        try:
            self._place()
            for bucket in self._buckets:
                if bucket.handle is None:
                    bucket.start()
            rows = [self._start_sparse(member) for member in self._sparse]
            for bucket in self._buckets:
                bucket.finish()
            for member, wait in zip(self._sparse, rows):
                member.param.grad = wait()
        except BaseException:
            for bucket in self._buckets:
                bucket.leave()
            raise
        finally:
            self.dirty = False
            self.set_passes(self.passes)
        self.synchronized = True

    def abandon(self) -> None:
        """Forget gradients that have come and reductions that have started: the step is taken back."""
        for bucket in self._buckets:
            bucket.leave()
        self.dirty = self.synchronized = False
        self.set_passes(self.passes)

    def set_passes(self, passes: int) -> None:
        """Count that many backward passes from now on."""
        self.passes = passes
        for member in self.members:
            member.left = passes

    def _start_sparse(self, member: Member) -> Callable[[], torch.Tensor]:
        gradient, dims = member.param.grad, member.sparse_dims
        shape = member.param.shape
        if gradient is None:  # on this rank
            indices = torch.zeros(dims, 0, dtype=torch.int64)
            values = member.param.new_zeros(0, *shape[dims:]).detach()
            gradient = torch.sparse_coo_tensor(indices, values, shape, check_invariants=False)
        elif not gradient.is_sparse:
            gradient = gradient.to_sparse(dims)
        return sparse_allreduce_async(gradient, member.name, self.how.op, self.how.process_set)

    def _place(self) -> None:
        """Give members their place in buckets: those that have none, or all where another engine has started."""
        if self._life != repeated.life():
            self._life = repeated.life()
            self._buckets, self._sparse = [], []
            for member in self.members:
                member.placed, member.bucket = False, None
        if self._frozen:
            self._thaw()
        fresh = [member for member in self.members if not member.placed]
        if not fresh:
            return
        dense = []
        for member, kind in zip(fresh, self._agreed_kinds(fresh)):
            if kind >= _SPARSE and not self.how.sparse_as_dense:
                member.sparse_dims, member.placed = kind - _SPARSE, True
                self._sparse.append(member)
            else:
                dense.append(member)
        self._buckets += [Bucket(members, self.how) for members in divide(dense, self._groups, self.how)]

    def _agreed_kinds(self, members: Sequence[Member]) -> list[int]:
        """Return what kind of gradient each has on any rank. Ranks that have joined have no part in a maximum."""
        text = repr([(one.name, tuple(one.param.shape), one.param.stride(), one.param.dtype) for one in members])
        digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
        own = torch.tensor([len(members), digest, -len(members), -digest])
        most = _maximum(own, f"{members[0].name}.model", self.how)
        if not torch.equal(most[:2], -most[2:]):
            raise ValueError(
                f"the ranks' parameters differ: this rank has {len(members)} that need gradients, from "
                f"{members[0].name} to {members[-1].name}. Give the optimizer the same parameters, of the same names, "
                "shapes and types and in the same order, on all ranks"
            )
        return _maximum(
            torch.tensor([_kind(one.param.grad) for one in members]), f"{members[0].name}.kinds", self.how
        ).tolist()


def _kind(gradient: torch.Tensor | None) -> int:
    if gradient is None:
        return _NO_GRADIENT
    return _SPARSE + gradient.sparse_dim() if gradient.is_sparse else _DENSE


def _maximum(tensor: torch.Tensor, name: str, how: Reduction) -> torch.Tensor:
    return allreduce(tensor, op=abi.MAX, name=name, process_set=how.process_set)


def _remove(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()
