# SPDX-License-Identifier: Apache-2.0
"""
Collective operations on NumPy arrays, with the names and signatures of horovod.torch.

Every function that takes an array also takes what `np.asarray` takes, but for those that end in `_`: they work in place
and need a writable array in C order. Functions with `async` in their name return a handle for `poll` and `synchronize`;
leave the array alone until then. Errors: TypeError and ValueError for wrong arguments, HorovodInternalError when ranks
disagree or one is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from horovod.common import batch, reductions, repeated, request
from horovod.common.arguments import factors, show, whole_number
from horovod.common.arguments import root_rank as checked_root
from horovod.common.barrier import barrier as _barrier
from horovod.common.joining import join as _join
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.numpy import repeating
from horovod.numpy.adapter import as_in_place, as_input, new_output, wrap
from horovod.numpy.compression import Compression, compressed
from horovod.numpy.operations import broadcasting, gathering, reduction


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> np.ndarray:
    """
    Return the reduction of all ranks' arrays; by default their average.

    Sums are made in rank order, so every rank and every run gets the same bits. A name that stays the same from step to
    step makes the call faster.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> hvd.allreduce([1.0, 2.0], op=hvd.Average, name="weights")
    array([1., 2.])
    """
    key = None
    if average is None and compression is Compression.none:
        key = repeating.key_of(tensor, name, op, prescale_factor, postscale_factor, process_set)
        if key in repeated.known:
            output = new_output(tensor)
            if repeating.run(key, tensor, output):
                return output
    reduce_op = reductions.choose(op, average)
    array, context, wire = compressed(compression, tensor, reduce_op)
    output = new_output(array)
    operation = reduction(array, output, reduce_op, factors(prescale_factor, postscale_factor), process_set, wire)
    request.run(operation.named("allreduce", name), (array, output))
    if key is not None:
        repeated.learn(key, operation)
    return compression.decompress(output, context)


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `allreduce`; `synchronize` returns the new array."""
    key = None
    if average is None:
        key = repeating.key_of(tensor, name, op, prescale_factor, postscale_factor, process_set)
        if key in repeated.known:
            handle = repeating.submit(key, tensor, new_output(tensor))
            if handle is not None:
                return handle
    reduce_op = reductions.choose(op, average)
    array = as_input(tensor)
    output = new_output(array)
    operation = reduction(array, output, reduce_op, factors(prescale_factor, postscale_factor), process_set)
    handle = request.submit(operation.named("allreduce", name), (array, output), lambda _: output)
    if key is not None:
        repeated.learn(key, operation)
    return handle


def allreduce_(
    tensor: np.ndarray,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> np.ndarray:
    """Reduce in place and return `tensor`."""
    key = None
    if average is None:
        key = repeating.key_of(tensor, name, op, prescale_factor, postscale_factor, process_set)
        if repeating.run(key, tensor, tensor):
            return tensor
    reduce_op = reductions.choose(op, average)
    array = as_in_place(tensor, "allreduce_")
    operation = reduction(array, array, reduce_op, factors(prescale_factor, postscale_factor), process_set)
    request.run(operation.named("allreduce", name), (array,))
    if key is not None:
        repeated.learn(key, operation)
    return tensor


def allreduce_async_(
    tensor: np.ndarray,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `allreduce_`; `synchronize` returns `tensor`."""
    key = None
    if average is None:
        key = repeating.key_of(tensor, name, op, prescale_factor, postscale_factor, process_set)
        handle = repeating.submit(key, tensor, tensor)
        if handle is not None:
            return handle
    reduce_op = reductions.choose(op, average)
    array = as_in_place(tensor, "allreduce_async_")
    operation = reduction(array, array, reduce_op, factors(prescale_factor, postscale_factor), process_set)
    handle = request.submit(operation.named("allreduce", name), (array,), lambda _: tensor)
    if key is not None:
        repeated.learn(key, operation)
    return handle


def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> np.ndarray:
    """
    Return all ranks' arrays, joined along the first dimension in rank order. Only that dimension may differ by rank.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> hvd.allgather(np.zeros((2, 3))).shape == (2 * hvd.size(), 3)
    True
    """
    array = as_input(tensor)
    result = request.run(gathering(array, process_set).named("allgather", name), (array,))
    assert result is not None
    return wrap(result, array.dtype)


def allgather_async(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Start `allgather`; `synchronize` returns the joined array."""
    array = as_input(tensor)
    operation = gathering(array, process_set).named("allgather", name)
    return request.submit(operation, (array,), lambda result: wrap(result, array.dtype))


def broadcast(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> np.ndarray:
    """
    Return root_rank's array on every rank. root_rank is a rank of the whole job, also for a process set.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> hvd.broadcast([1, 2], root_rank=0)
    array([1, 2])
    """
    array = as_input(tensor)
    output = new_output(array)
    request.run(broadcasting(array, output, root_rank, process_set).named("broadcast", name), (array, output))
    return output


def broadcast_async(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `broadcast`; `synchronize` returns the new array."""
    array = as_input(tensor)
    output = new_output(array)
    operation = broadcasting(array, output, root_rank, process_set).named("broadcast", name)
    return request.submit(operation, (array, output), lambda _: output)


def broadcast_(
    tensor: np.ndarray, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> np.ndarray:
    """Overwrite `tensor` with root_rank's and return it."""
    array = as_in_place(tensor, "broadcast_")
    request.run(broadcasting(array, array, root_rank, process_set).named("broadcast", name), (array,))
    return tensor


def broadcast_async_(
    tensor: np.ndarray, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `broadcast_`; `synchronize` returns `tensor`."""
    array = as_in_place(tensor, "broadcast_async_")
    operation = broadcasting(array, array, root_rank, process_set).named("broadcast", name)
    return request.submit(operation, (array,), lambda _: tensor)


def broadcast_parameters(params: Mapping[str, np.ndarray] | Sequence[Any], root_rank: int) -> None:
    """
    Overwrite all arrays of a dict, or of a list of arrays or (name, array) pairs, with root_rank's.

    Nothing is sent unless every entry can be. Arrays may share memory with each other.
    """
    root = checked_root(root_rank)
    items: list[batch.Item] = []
    names_used: set[str] = set()
    for label, name, array in _named(params):
        try:
            checked = as_in_place(array, "broadcast_parameters")
            operation = broadcasting(checked, array, root, global_process_set).named("broadcast", name)
            if name in names_used:
                raise ValueError(f"there is the name {name!r} twice: give each array its own")
        except (TypeError, ValueError) as error:
            raise type(error)(f"params[{label}]: {error}") from None
        names_used.add(name)
        items.append((operation, (array,)))
    batch.run_all(items)


def _named(params: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(params, Mapping):
        # Text first, so that a key of another type is found by the check of names and not by the sort.
        for name in sorted(params, key=lambda name: (not isinstance(name, str), str(name))):
            yield repr(name), name, params[name]
    elif isinstance(params, Sequence) and not isinstance(params, (str, bytes)):
        for i, item in enumerate(params):
            if not isinstance(item, tuple):
                yield str(i), f"parameter.{i}", item
            elif len(item) == 2:
                yield str(i), item[0], item[1]
            else:
                raise ValueError(f"params[{i}]: {show('entry', item)} is no pair: give an array or (name, array)")
    else:
        raise ValueError(f"{show('params', params)} is {type(params).__name__}: give a dict or a list")


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """
    Return when every rank of the set has called it. Threads of a rank take turns.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> hvd.barrier()
    """
    _barrier(process_set)


def join(device: int = -1) -> int:
    """
    Declare that this rank has no more data. When all ranks have, return the rank that was the last to do so.

    Until then it takes part in the others' allreduces: with zeros in sums, averages and Adasum, not at all in minima,
    maxima and products. An average still divides by the number of all ranks. Other operations fail on the other ranks,
    unless HOROVOD_JOIN_EXTENDED=1. `device` is for programs that give one; it has no meaning here.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> hvd.join() < hvd.size()
    True
    """
    whole_number("device", device, "-1")
    return _join()


def poll(handle: int) -> bool:
    """Return whether the operation has finished: `synchronize` then returns at once. ValueError: no such handle."""
    return request.poll(handle)


def synchronize(handle: int) -> Any:
    """
    Wait until an operation has finished; return its result or raise its error. Returns None for an unknown handle.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> handle = hvd.allreduce_async([1.0, 2.0], op=hvd.Max, name="maxima")
    >>> hvd.synchronize(handle)
    array([1., 2.])
    """
    return request.synchronize(handle)
