# SPDX-License-Identifier: Apache-2.0
"""
Allreduces of tensors: blocking, asynchronous and in place.

A function without _ at its end takes any tensor and returns a new one; gradients flow through it. A function with _
writes to its tensor, which must be contiguous. Functions with `async` in their name return a handle for `poll` and
`synchronize`; leave the tensor alone until then. Errors: TypeError and ValueError for wrong arguments,
HorovodInternalError when ranks disagree or one is lost.
"""

from __future__ import annotations

from typing import Any

import torch

from horovod.common import abi, reductions, repeated, request
from horovod.common.arguments import factors
from horovod.common.exceptions import HorovodUnsupportedError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.adapter import as_in_place, as_input, new_output
from horovod.torch.compiling import eager
from horovod.torch.compression import Compression, checked_compression, wire_of
from horovod.torch.operations import reduction

_KINDS = (torch.Tensor, torch.nn.Parameter)
_NOT_DIFFERENTIABLE = {abi.MIN: "Min", abi.MAX: "Max", abi.PRODUCT: "Product"}


def needs_gradient(*tensors: Any) -> bool:
    """Whether a result of these must have a history."""
    return torch.is_grad_enabled() and any(isinstance(one, torch.Tensor) and one.requires_grad for one in tensors)


def _key(tensor: Any, name: Any, op: Any, prescale: Any, postscale: Any, process_set: Any) -> tuple | None:
    """Return what an operation is known by if it repeats; None where the arguments have to be looked at first."""
    if (
        type(name) is str
        and type(tensor) in _KINDS
        and (op is None or type(op) is int)
        and type(process_set) is ProcessSet
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
    ):
        return (name, tensor.shape, tensor.dtype, op, prescale, postscale, process_set.process_set_id)
    return None


def _run(
    tensor: torch.Tensor,
    output: torch.Tensor,
    key: tuple | None,
    name: str | None,
    op: int,
    scale: tuple[float, float],
    process_set: ProcessSet,
    wire: int = 0,
) -> None:
    operation = reduction(tensor, output, op, scale, process_set, wire).named("allreduce", name)
    request.run(operation, (tensor, output))
    if key is not None and wire == 0:
        repeated.learn(key, operation)


def _submit(
    tensor: torch.Tensor,
    output: torch.Tensor,
    result: Any,
    key: tuple | None,
    name: str | None,
    op: int,
    scale: tuple[float, float],
    process_set: ProcessSet,
) -> int:
    operation = reduction(tensor, output, op, scale, process_set).named("allreduce", name)
    handle = request.submit(operation, (tensor, output), lambda _: result)
    if key is not None:
        repeated.learn(key, operation)
    return handle


@eager
def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """
    Return the reduction of all ranks' tensors; by default their average.

    Sums are made in rank order, so every rank and every run gets the same bits. A name that stays the same from step to
    step makes the call faster.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> hvd.allreduce(torch.tensor([1.0, 2.0]), op=hvd.Average, name="weights")
    tensor([1., 2.])
    """
    if needs_gradient(tensor):
        checked_compression(compression)
        reduce_op = reductions.choose(op, average)
        small, context = compression.compress(tensor)
        reduced = HorovodAllreduce.apply(small, None, name, reduce_op, prescale_factor, postscale_factor, process_set)
        return compression.decompress(reduced, context)
    key = None
    if average is None and compression is Compression.none:
        key = _key(tensor, name, op, prescale_factor, postscale_factor, process_set)
        slot = repeated.take(key)
        if slot is not None:
            output = new_output(tensor)
            try:
                request.run_prepared(slot, tensor.data_ptr(), output.data_ptr(), (tensor, output))
            finally:
                repeated.give_back(key, slot)
            return output
    reduce_op = reductions.choose(op, average)
    checked_compression(compression)
    source, context = as_input(tensor), None
    wire = wire_of(compression, reduce_op, source.dtype)
    if not wire:
        source, context = compression.compress(source)
        source = as_input(source)
    output = new_output(source)
    _run(source, output, key, name, reduce_op, factors(prescale_factor, postscale_factor), process_set, wire)
    return compression.decompress(output, context)


@eager
def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `allreduce`; `synchronize` returns the new tensor, which has no history."""
    reduce_op = reductions.choose(op, average)
    source = as_input(tensor)
    output = new_output(source)
    return _submit_any(source, output, output, name, reduce_op, prescale_factor, postscale_factor, process_set)


@eager
def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce in place and return `tensor`."""
    key = None
    if average is None:
        key = _key(tensor, name, op, prescale_factor, postscale_factor, process_set)
        slot = repeated.take(key)
        if slot is not None:
            address = tensor.data_ptr()
            try:
                request.run_prepared(slot, address, address, (tensor,))
            finally:
                repeated.give_back(key, slot)
            return tensor
    reduce_op = reductions.choose(op, average)
    target = as_in_place(tensor, "allreduce_")
    _run(target, target, key, name, reduce_op, factors(prescale_factor, postscale_factor), process_set)
    return tensor


@eager
def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `allreduce_`; `synchronize` returns `tensor`."""
    reduce_op = reductions.choose(op, average)
    target = as_in_place(tensor, "allreduce_async_")
    return _submit_any(target, target, tensor, name, reduce_op, prescale_factor, postscale_factor, process_set)


def _submit_any(
    tensor: torch.Tensor,
    output: torch.Tensor,
    result: torch.Tensor,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> int:
    key = _key(tensor, name, op, prescale_factor, postscale_factor, process_set)
    slot = repeated.take(key)
    if slot is None:
        scale = factors(prescale_factor, postscale_factor)
        return _submit(tensor, output, result, key, name, op, scale, process_set)
    keep = (tensor, output)
    try:
        return request.submit_prepared(slot, tensor.data_ptr(), output.data_ptr(), keep, lambda _: result)
    finally:
        repeated.give_back(key, slot)


def refuse_gradient(op: int) -> None:
    """Raise HorovodUnsupportedError for a reduction whose gradient is not that of a sum."""
    if op in _NOT_DIFFERENTIABLE:
        raise HorovodUnsupportedError(
            f"an allreduce by hvd.{_NOT_DIFFERENTIABLE[op]} has no gradient: give it tensor.detach()"
        )


class HorovodAllreduce(torch.autograd.Function):
    """`allreduce` for autograd: the gradient is the same reduction of all ranks' gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        average: bool | None,
        name: str | None,
        op: int | None,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
    ) -> torch.Tensor:
        """Reduce."""
        ctx.reduction = (average, op, prescale_factor, postscale_factor, process_set)
        refuse_gradient(reductions.choose(op, average))
        return allreduce(
            tensor,
            average=average,
            name=name,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        )

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        """Reduce the gradients."""
        average, op, prescale_factor, postscale_factor, process_set = ctx.reduction
        reduced = allreduce(
            gradient,
            average=average,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        )
        return (reduced, *[None] * 6)
