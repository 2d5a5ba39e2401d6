# SPDX-License-Identifier: Apache-2.0
"""
Models whose `backward` reduces gradients, in the shape of DistributedDataParallel, and a communication hook for it.

Both leave the optimizer as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from horovod.common import elastic, membership, reductions, request
from horovod.common.process_sets import ProcessSet, global_process_set, id_of, ranks_of, takes_part
from horovod.torch.buckets import Reduction
from horovod.torch.compiling import eager
from horovod.torch.compression import Compression, checked_compression
from horovod.torch.functions import broadcast_parameters
from horovod.torch.futures import Waiter
from horovod.torch.reducer import Reducer
from horovod.torch.reducing import allreduce_async_


class DistributedModule(torch.nn.Module):
    """What `wrap` returns: `module` is the model."""

    def __init__(self, module: torch.nn.Module, how: Reduction, broadcast_buffers: bool) -> None:
        super().__init__()
        self.module = module
        self._how = how
        self._reducer: Reducer | None = None
        self._buffers_of_root = broadcast_buffers and any(True for _ in module.buffers())
        self._is_sent = False  # every rank has begun with the parameters and buffers of the first one
        if not takes_part(how.process_set):
            return
        if not membership.enabled():
            self._send(module.state_dict())
        reducer = Reducer(how, started=lambda: _after_backward(reducer))
        reducer.add(list(module.named_parameters()))
        self._reducer = reducer

    def _send(self, tensors: Mapping[str, torch.Tensor]) -> None:
        process_set = self._how.process_set
        broadcast_parameters(tensors, ranks_of(id_of(process_set))[0], process_set)
        self._is_sent = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model; in training with the buffers of the first rank."""
        reducer = self._reducer
        if reducer is not None and torch.is_grad_enabled():
            if reducer.dirty:
                _forget_failed_backward(reducer)
            if not self._is_sent:
                self._send_once()
            elif self._buffers_of_root and self.training:
                self._send_buffers(reducer)
        return self.module(*args, **kwargs)

    @eager
    def _send_once(self) -> None:
        # In an elastic job: ranks may be lost and come before they train. The state of hvd.elastic.run is sent then.
        if elastic.is_running():
            self._is_sent = True
        else:
            self._send(self.module.state_dict())

    @eager
    def _send_buffers(self, reducer: Reducer) -> None:
        if reducer.enabled:
            self._send(dict(self.module.named_buffers()))

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


@eager
def _forget_failed_backward(reducer: Reducer) -> None:
    # Where no backward runs, an error has ended the last one.
    if torch._C._current_graph_task_id() == -1:
        reducer.abandon()


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
