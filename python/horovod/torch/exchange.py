# SPDX-License-Identifier: Apache-2.0
"""Allgather, broadcast, alltoall and reducescatter of tensors. Conventions as in reducing.py."""

from __future__ import annotations

from typing import Any

import torch

from horovod.common import abi, reductions, request
from horovod.common.arguments import factors
from horovod.common.arguments import splits as checked_splits
from horovod.common.basics import HorovodBasics
from horovod.common.process_sets import ProcessSet, global_process_set, id_of, ranks_of
from horovod.torch.adapter import as_in_place, as_input, new_output, wrap
from horovod.torch.compiling import eager
from horovod.torch.compression import Compression, checked_compression
from horovod.torch.operations import broadcasting, exchanging, gathering, scattering
from horovod.torch.reducing import allreduce, needs_gradient

_rank = HorovodBasics().rank


@eager
def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """
    Return all ranks' tensors, joined along the first dimension in rank order. Only that dimension may differ by rank.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> hvd.allgather(torch.zeros(2, 3)).shape == (2 * hvd.size(), 3)
    True
    """
    if needs_gradient(tensor):
        return HorovodAllgather.apply(tensor, name, process_set)
    source = as_input(tensor)
    result = request.run(gathering(source, process_set).named("allgather", name), (source,))
    assert result is not None
    return wrap(result, source.dtype)


@eager
def allgather_async(tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Start `allgather`; `synchronize` returns the joined tensor."""
    source = as_input(tensor)
    operation = gathering(source, process_set).named("allgather", name)
    return request.submit(operation, (source,), lambda result: wrap(result, source.dtype))


def own_rows(rows: int, gathered: torch.Tensor, process_set: ProcessSet) -> torch.Tensor:
    """Return what this rank's tensor of so many rows has contributed."""
    all_rows = allgather(torch.tensor([rows]), process_set=process_set).tolist()
    begin = sum(all_rows[: ranks_of(id_of(process_set)).index(_rank())])
    return gathered[begin : begin + rows]


class HorovodAllgather(torch.autograd.Function):
    """`allgather` for autograd: the gradient is this rank's rows of the average of all ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> torch.Tensor:
        """Gather."""
        ctx.process_set = process_set
        gathered = allgather(tensor, name, process_set)
        ctx.rows = tensor.shape[0]
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        """Average the gradients."""
        average = allreduce(gradient, op=reductions.Average, process_set=ctx.process_set)
        return own_rows(ctx.rows, average, ctx.process_set), None, None


@eager
def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """
    Return root_rank's tensor on every rank. root_rank is a rank of the whole job, also for a process set.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> hvd.broadcast(torch.tensor([1, 2]), root_rank=0)
    tensor([1, 2])
    """
    if needs_gradient(tensor):
        return HorovodBroadcast.apply(tensor, root_rank, name, process_set)
    source = as_input(tensor)
    output = new_output(source)
    request.run(broadcasting(source, output, root_rank, process_set).named("broadcast", name), (source, output))
    return output


@eager
def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `broadcast`; `synchronize` returns the new tensor."""
    source = as_input(tensor)
    output = new_output(source)
    operation = broadcasting(source, output, root_rank, process_set).named("broadcast", name)
    return request.submit(operation, (source, output), lambda _: output)


@eager
def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Overwrite `tensor` with root_rank's and return it."""
    target = as_in_place(tensor, "broadcast_")
    request.run(broadcasting(target, target, root_rank, process_set).named("broadcast", name), (target,))
    return tensor


@eager
def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `broadcast_`; `synchronize` returns `tensor`."""
    target = as_in_place(tensor, "broadcast_async_")
    operation = broadcasting(target, target, root_rank, process_set).named("broadcast", name)
    return request.submit(operation, (target,), lambda _: tensor)


class HorovodBroadcast(torch.autograd.Function):
    """`broadcast` for autograd: the root gets the average of all ranks' gradients, the others get zeros."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        """Broadcast."""
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return broadcast(tensor, root_rank, name, process_set)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        """Average the gradients."""
        average = allreduce(gradient, op=reductions.Average, process_set=ctx.process_set)
        return average if _rank() == ctx.root_rank else average * 0, None, None, None


def _received(result: request.Result, dtype: torch.dtype, splits: Any) -> Any:
    output = wrap(result, dtype)
    if splits is None:
        return output
    # As the caller's splits, where those are a tensor.
    return output, torch.tensor(result.received_splits, dtype=getattr(splits, "dtype", torch.int32))


def _rows(splits: Any) -> tuple[int, ...] | None:
    if splits is None:
        return None
    return checked_splits(splits.tolist() if isinstance(splits, torch.Tensor) else splits)


@eager
def alltoall(
    tensor: torch.Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """
    Send `splits[r]` rows to each rank r of the set, in order; return the rows received, in rank order.

    With `splits` the result is a pair: the rows, and how many came from each rank. Without, every rank gets an equal
    part, and the result is the rows alone. Rows after the sum of `splits` are not sent.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> hvd.alltoall(torch.arange(hvd.size())).tolist() == [hvd.rank()] * hvd.size()
    True
    """
    if needs_gradient(tensor):
        output, received = HorovodAlltoall.apply(tensor, splits, name, process_set)
        return output if splits is None else (output, received)
    source, rows = as_input(tensor), _rows(splits)
    result = request.run(exchanging(source, rows, process_set).named("alltoall", name), (source,))
    assert result is not None
    return _received(result, source.dtype, splits)


@eager
def alltoall_async(
    tensor: torch.Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `alltoall`; `synchronize` returns what it would."""
    source, rows = as_input(tensor), _rows(splits)
    operation = exchanging(source, rows, process_set).named("alltoall", name)
    return request.submit(operation, (source,), lambda result: _received(result, source.dtype, splits))


class HorovodAlltoall(torch.autograd.Function):
    """`alltoall` for autograd: gradients go back where rows came from."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Exchange rows."""
        ctx.process_set, ctx.rows = process_set, tensor.shape[0] if tensor.dim() else 0
        if splits is None:
            size = len(ranks_of(id_of(process_set)))
            output = alltoall(tensor, None, name, process_set)
            received = torch.full((size,), output.shape[0] // size, dtype=torch.int32)
        else:
            output, received = alltoall(tensor, splits, name, process_set)
        ctx.mark_non_differentiable(received)
        ctx.received = received
        return output, received

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> tuple:
        """Exchange gradients."""
        rows, _ = alltoall(gradient, ctx.received, process_set=ctx.process_set)
        # Rows of the input that were sent to nobody have had no effect.
        left = ctx.rows - rows.shape[0]
        if left > 0:
            rows = torch.cat([rows, rows.new_zeros(left, *rows.shape[1:])])
        return rows, None, None, None


@eager
def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = reductions.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """
    Return this rank's rows of the reduction of all ranks' tensors: `Average` or `Sum`.

    The first dimension is divided among the ranks in rank order. Where that does not come out even, the first ranks
    have one row more; with fewer rows than ranks, the last have none.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> hvd.reducescatter(torch.ones(hvd.size(), 2), op=hvd.Average)
    tensor([[1., 1.]])
    """
    reduce_op = reductions.choose(op, None)
    small, context = checked_compression(compression).compress(tensor)
    if needs_gradient(small):
        reduced = HorovodReducescatter.apply(small, name, op, process_set, prescale_factor, postscale_factor)
        return compression.decompress(reduced, context)
    source = as_input(small)
    operation = scattering(source, reduce_op, factors(prescale_factor, postscale_factor), process_set)
    result = request.run(operation.named("reducescatter", name), (source,))
    assert result is not None
    return compression.decompress(wrap(result, source.dtype), context)


@eager
def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = reductions.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start `reducescatter`; `synchronize` returns this rank's rows."""
    reduce_op = reductions.choose(op, None)
    source = as_input(tensor)
    operation = scattering(source, reduce_op, factors(prescale_factor, postscale_factor), process_set)
    return request.submit(operation.named("reducescatter", name), (source,), lambda result: wrap(result, source.dtype))


def scattered_gradient(
    gradient: torch.Tensor, op: int, prescale_factor: float, postscale_factor: float, process_set: ProcessSet
) -> torch.Tensor:
    """Return what the ranks gather as the gradient of a reducescatter."""
    factor = prescale_factor * postscale_factor
    if op == abi.SUM:
        factor *= len(ranks_of(id_of(process_set)))
    return gradient if factor == 1.0 else gradient * factor


class HorovodReducescatter(torch.autograd.Function):
    """`reducescatter` for autograd: the gradients of all ranks' rows are gathered."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
    ) -> torch.Tensor:
        """Reduce."""
        ctx.reduction = (op, prescale_factor, postscale_factor, process_set)
        return reducescatter(
            tensor,
            name=name,
            op=op,
            process_set=process_set,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        """Gather the gradients."""
        process_set = ctx.reduction[-1]
        return (allgather(scattered_gradient(gradient, *ctx.reduction), process_set=process_set), *[None] * 5)
