# SPDX-License-Identifier: Apache-2.0
"""
Models whose `backward` reduces gradients, in the shape of DistributedDataParallel, and a communication hook for it.

Both leave the optimizer as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from horovod.common import membership, reductions, request
from horovod.common.basics import HorovodBasics
from horovod.common.process_sets import ProcessSet, global_process_set, id_of, ranks_of
from horovod.torch.buckets import Reduction
from horovod.torch.compiling import eager
from horovod.torch.compression import Compression, checked_compression
from horovod.torch.functions import broadcast_parameters
from horovod.torch.futures import Waiter
from horovod.torch.reducer import Reducer
from horovod.torch.reducing import allreduce_async_

_basics = HorovodBasics()


class DistributedModule(torch.nn.Module):
    """What `wrap` returns: `module` is the model."""

    def __init__(self, module: torch.nn.Module, how: Reduction, broadcast_buffers: bool) -> None:
        super().__init__()
        self.module = module
        self._how = how
        members = ranks_of(id_of(how.process_set))
        self._root = members[0]
        self._reducer: Reducer | None = None
        self._buffers_of_root = broadcast_buffers and any(True for _ in module.buffers())
        if (len(members) == 1 and not membership.enabled()) or _basics.rank() not in members:
            return
        if not membership.enabled():  # otherwise the state of hvd.elastic.run is sent, when a rank comes
            broadcast_parameters(module.state_dict(), self._root, how.process_set)
        reducer = Reducer(how, started=lambda: _after_backward(reducer))
        reducer.add(list(module.named_parameters()))
        self._reducer = reducer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model; in training with the buffers of the first rank."""
        if self._buffers_of_root and self.training and self._reducer is not None and torch.is_grad_enabled():
            self._broadcast_buffers()
        return self.module(*args, **kwargs)

    @eager
    def _broadcast_buffers(self) -> None:
        if self._reducer is not None and self._reducer.enabled:
            broadcast_parameters(dict(self.module.named_buffers()), self._root, self._how.process_set)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Leave gradients as they are; the first `backward` after it reduces what has added up."""
        if self._reducer is None:
            yield
            return
        self._reducer.enabled = False
        try:
            yield
        finally:
            self._reducer.enabled = True

    def join(self) -> int:
        """Say that this rank has no more batches; return the rank that came last, when all have. See `hvd.join`."""
        from horovod.torch.mpi_ops import join

        return join()


def _after_backward(reducer: Reducer) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(reducer.synchronize)


def wrap(
    model: torch.nn.Module,
    op: int = reductions.Average,
    compression: Any = Compression.none,
    broadcast_buffers: bool = True,
    process_set: ProcessSet = global_process_set,
) -> DistributedModule:
    """
    Return a module that calls `model`, and whose gradients are those of all ranks when `backward` returns.

    Every rank begins with the parameters and buffers of the first one. Any optimizer may follow, as in a program of one
    process; do not make it a DistributedOptimizer, too. All ranks call `backward` equally often.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> model = hvd.wrap(torch.nn.Linear(2, 1))
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> model.module.weight.grad
    tensor([[1., 1.]])
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is a {type(model).__name__}: give a torch.nn.Module")
    reduce_op = reductions.choose(op, None)
    how = Reduction(reduce_op, compression=checked_compression(compression), process_set=process_set)
    return DistributedModule(model, how, broadcast_buffers)


_waiter = Waiter()


# DistributedDataParallel refuses annotations that are text, as they all are in this file.
def ddp_comm_hook(process_set, bucket):  # type: ignore[no-untyped-def]
    """
    Average a bucket of DistributedDataParallel: `ddp_model.register_comm_hook(None, hvd.ddp_comm_hook)`.

    DistributedDataParallel keeps its process group for all else; `init` has to be called, too. The state is None or a
    process set.
    """
    handle = allreduce_async_(
        bucket.buffer(), name=f"ddp.{bucket.index()}", process_set=process_set or global_process_set
    )
    return _waiter.call(lambda: request.synchronize(handle), None).future
