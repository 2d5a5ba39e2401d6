# SPDX-License-Identifier: Apache-2.0
"""
Operations on lists of tensors: all or none of a list is done, and all of it is over at the same time.

Every rank gives lists of the same length. A list has one name, and one handle where the function is asynchronous. An
empty list is returned as it is. Other conventions as in reducing.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch

from horovod.common import reductions, request
from horovod.common.arguments import factors, tensor_list
from horovod.common.operation import Operation, name_group
from horovod.common.process_sets import ProcessSet, global_process_set, id_of
from horovod.torch.adapter import as_in_place, as_input, new_output, wrap
from horovod.torch.compiling import eager
from horovod.torch.compression import Compression, checked_compression, wire_of
from horovod.torch.exchange import own_rows, scattered_gradient
from horovod.torch.operations import gathering, reduction, scattering
from horovod.torch.reducing import needs_gradient, refuse_gradient


def _each(tensors: Sequence[Any], function: Callable[[Any], Any]) -> list[Any]:
    """Apply a function to every member; an error says which one it was."""
    results = []
    for i, tensor in enumerate(tensors):
        try:
            results.append(function(tensor))
        except (TypeError, ValueError) as error:
            raise type(error)(f"tensors[{i}]: {error}") from None
    return results


def _in_place(tensors: Sequence[Any], function: str) -> list[torch.Tensor]:
    targets = _each(tensors, lambda tensor: as_in_place(tensor, function))
    # All members are written at the same time.
    places = sorted((one.data_ptr(), one.numel() * one.element_size(), i) for i, one in enumerate(targets))
    places = [place for place in places if place[1] > 0]
    for (begin, size, first), (other, _, second) in zip(places, places[1:]):
        if begin + size > other:
            first, second = sorted((first, second))
            raise ValueError(
                f"{function} works in place: tensors[{first}] and tensors[{second}] share memory; give separate "
                "tensors, or use the form without _"
            )
    return targets


def _reductions(
    tensors: list[torch.Tensor],
    outputs: list[torch.Tensor],
    op: int,
    scale: tuple[float, float],
    process_set: ProcessSet,
    wires: Sequence[int] | None = None,
) -> list[Operation]:
    id_of(process_set)  # before the members: it is no fault of the first
    members = list(zip(tensors, outputs, wires or [0] * len(tensors)))
    return _each(members, lambda member: reduction(member[0], member[1], op, scale, process_set, member[2]))


@eager
def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Sequence[torch.Tensor]:
    """
    Return the reductions of all ranks' tensors, one for each of the list; by default averages.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> hvd.grouped_allreduce([torch.tensor([1.0, 2.0]), torch.tensor(3.0)], name="layers")
    [tensor([1., 2.]), tensor(3.)]
    """
    reduce_op = reductions.choose(op, average)
    tensors = tensor_list("grouped_allreduce", tensors)
    scale = factors(prescale_factor, postscale_factor)
    checked_compression(compression)
    if needs_gradient(*tensors):
        members = _each(tensors, compression.compress)
        reduced = HorovodGroupedAllreduce.apply(
            None, name, reduce_op, *scale, process_set, *[small for small, _ in members]
        )
        return [compression.decompress(one, context) for one, (_, context) in zip(reduced, members)]
    sources = _each(tensors, as_input)
    wires = [wire_of(compression, reduce_op, one.dtype) for one in sources]
    members = [(one, None) if wire else compression.compress(one) for one, wire in zip(sources, wires)]
    sources = [as_input(small) for small, _ in members]
    outputs = [new_output(one) for one in sources]
    operations = _reductions(sources, outputs, reduce_op, scale, process_set, wires)
    if not tensors:
        return tensors
    request.run_group(name_group(operations, "grouped_allreduce", name), (sources, outputs))
    return [compression.decompress(one, context) for one, (_, context) in zip(outputs, members)]


@eager
def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `grouped_allreduce`; `synchronize` returns the list of new tensors."""
    reduce_op = reductions.choose(op, average)
    sources = _each(tensor_list("grouped_allreduce_async", tensors), as_input)
    outputs = [new_output(one) for one in sources]
    scale = factors(prescale_factor, postscale_factor)
    return _submit(sources, outputs, outputs, name, reduce_op, scale, process_set)


def _submit(
    sources: list[torch.Tensor],
    outputs: list[torch.Tensor],
    result: Any,
    name: str | None,
    op: int,
    scale: tuple[float, float],
    process_set: ProcessSet,
) -> int:
    operations = _reductions(sources, outputs, op, scale, process_set)
    if not operations:
        return request.finished(result)
    operations = name_group(operations, "grouped_allreduce", name)
    return request.submit_group(operations, (sources, outputs), lambda _: result)


@eager
def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Sequence[torch.Tensor]:
    """Reduce in place and return `tensors`. The tensors must not share memory."""
    reduce_op = reductions.choose(op, average)
    targets = _in_place(tensor_list("grouped_allreduce_", tensors), "grouped_allreduce_")
    scale = factors(prescale_factor, postscale_factor)
    operations = _reductions(targets, targets, reduce_op, scale, process_set)
    if operations:
        request.run_group(name_group(operations, "grouped_allreduce", name), targets)
    return tensors


@eager
def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `grouped_allreduce_`; `synchronize` returns `tensors`."""
    reduce_op = reductions.choose(op, average)
    targets = _in_place(tensor_list("grouped_allreduce_async_", tensors), "grouped_allreduce_async_")
    scale = factors(prescale_factor, postscale_factor)
    return _submit(targets, targets, tensors, name, reduce_op, scale, process_set)


class HorovodGroupedAllreduce(torch.autograd.Function):
    """`grouped_allreduce` for autograd: the gradients are the same reductions of all ranks' gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        average: bool | None,
        name: str | None,
        op: int | None,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> tuple:
        """Reduce."""
        ctx.options = {
            "average": average,
            "op": op,
            "prescale_factor": prescale_factor,
            "postscale_factor": postscale_factor,
            "process_set": process_set,
        }
        refuse_gradient(reductions.choose(op, average))
        return tuple(grouped_allreduce(tensors, name=name, **ctx.options))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple:
        """Reduce the gradients."""
        return (*[None] * 6, *grouped_allreduce(gradients, **ctx.options))


def _wrap_all(results: list[request.Result], sources: list[torch.Tensor]) -> list[torch.Tensor]:
    return [wrap(result, source.dtype) for result, source in zip(results, sources)]


def _gatherings(sources: list[torch.Tensor], process_set: ProcessSet) -> list[Operation]:
    id_of(process_set)
    return _each(sources, lambda source: gathering(source, process_set))


@eager
def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Sequence[torch.Tensor]:
    """
    Return `allgather` of each tensor of the list.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> one, two = hvd.grouped_allgather([torch.tensor([1]), torch.tensor([[2.0, 3.0]])])
    >>> one.shape == (hvd.size(),), two.shape == (hvd.size(), 2)
    (True, True)
    """
    if needs_gradient(*tensor_list("grouped_allgather", tensors)):
        return list(HorovodGroupedAllgather.apply(name, process_set, *tensors))
    sources = _each(tensors, as_input)
    operations = _gatherings(sources, process_set)
    if not tensors:
        return tensors
    return _wrap_all(request.run_group(name_group(operations, "grouped_allgather", name), sources), sources)


@eager
def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `grouped_allgather`; `synchronize` returns the list of joined tensors."""
    sources = _each(tensor_list("grouped_allgather_async", tensors), as_input)
    operations = _gatherings(sources, process_set)
    if not tensors:
        return request.finished(tensors)
    operations = name_group(operations, "grouped_allgather", name)
    return request.submit_group(operations, sources, lambda results: _wrap_all(results, sources))


class HorovodGroupedAllgather(torch.autograd.Function):
    """`grouped_allgather` for autograd: each gradient is this rank's rows of the average of all ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor) -> tuple:
        """Gather."""
        gathered = grouped_allgather(tensors, name, process_set)
        ctx.rows, ctx.process_set = [tensor.shape[0] for tensor in tensors], process_set
        return tuple(gathered)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple:
        """Average the gradients."""
        averages = grouped_allreduce(gradients, op=reductions.Average, process_set=ctx.process_set)
        own = [own_rows(rows, average, ctx.process_set) for rows, average in zip(ctx.rows, averages)]
        return None, None, *own


def _scatterings(
    sources: list[torch.Tensor], op: int, scale: tuple[float, float], process_set: ProcessSet
) -> list[Operation]:
    id_of(process_set)
    return _each(sources, lambda source: scattering(source, op, scale, process_set))


@eager
def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = reductions.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Sequence[torch.Tensor]:
    """
    Return `reducescatter` of each tensor of the list.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> hvd.grouped_reducescatter([torch.ones(hvd.size()), torch.zeros(hvd.size(), 2)], op=hvd.Average)
    [tensor([1.]), tensor([[0., 0.]])]
    """
    reduce_op = reductions.choose(op, None)
    tensors = tensor_list("grouped_reducescatter", tensors)
    scale = factors(prescale_factor, postscale_factor)
    members = _each(tensors, checked_compression(compression).compress)
    small = [one for one, _ in members]
    if needs_gradient(*small):
        outputs = HorovodGroupedReducescatter.apply(name, reduce_op, process_set, *scale, *small)
    else:
        sources = _each(small, as_input)
        operations = _scatterings(sources, reduce_op, scale, process_set)
        if not tensors:
            return tensors
        outputs = _wrap_all(request.run_group(name_group(operations, "grouped_reducescatter", name), sources), sources)
    return [compression.decompress(one, context) for one, (_, context) in zip(outputs, members)]


@eager
def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = reductions.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start `grouped_reducescatter`; `synchronize` returns the list of this rank's rows."""
    reduce_op = reductions.choose(op, None)
    sources = _each(tensor_list("grouped_reducescatter_async", tensors), as_input)
    operations = _scatterings(sources, reduce_op, factors(prescale_factor, postscale_factor), process_set)
    if not tensors:
        return request.finished(tensors)
    operations = name_group(operations, "grouped_reducescatter", name)
    return request.submit_group(operations, sources, lambda results: _wrap_all(results, sources))


class HorovodGroupedReducescatter(torch.autograd.Function):
    """`grouped_reducescatter` for autograd: the gradients of all ranks' rows are gathered."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
        *tensors: torch.Tensor,
    ) -> tuple:
        """Reduce."""
        ctx.reduction = (op, prescale_factor, postscale_factor, process_set)
        return tuple(
            grouped_reducescatter(
                tensors,
                name=name,
                op=op,
                process_set=process_set,
                prescale_factor=prescale_factor,
                postscale_factor=postscale_factor,
            )
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple:
        """Gather the gradients."""
        scattered = [scattered_gradient(gradient, *ctx.reduction) for gradient in gradients]
        return (*[None] * 5, *grouped_allgather(scattered, process_set=ctx.reduction[-1]))
