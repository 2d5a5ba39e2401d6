# SPDX-License-Identifier: Apache-2.0
"""
Collective operations on NumPy arrays, with the names and signatures of horovod.torch.

Every function that takes an array also takes what `np.asarray` takes, but for those that end in `_`: they work in place
and need a writable array in C order. Functions with `async` in their name return a handle for `poll` and `synchronize`;
leave the array alone until then. Errors: ValueError for wrong arguments, HorovodInternalError when ranks disagree or
one is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from horovod.common import abi, names, reductions, request
from horovod.common.arguments import factors, show
from horovod.common.arguments import root_rank as checked_root
from horovod.common.process_sets import ProcessSet, global_process_set, id_of
from horovod.numpy.adapter import as_in_place, as_input, dtype_code, place, wrap
from horovod.numpy.compression import Compression


def _reduction(
    array: np.ndarray,
    output: np.ndarray,
    name: str | None,
    reduce_op: int,
    scale: tuple[float, float],
    process_set: ProcessSet,
) -> request.Operation:
    identifier = id_of(process_set)
    dtype = dtype_code(array.dtype)
    source = place(array)
    return request.Operation(
        abi.ALLREDUCE,
        names.wire_name("allreduce", name, identifier),
        identifier,
        dtype,
        array.shape,
        source,
        source if output is array else place(output),
        reduce_op,
        0,
        scale,
    )


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
    reduce_op = reductions.choose(op, average)
    if not hasattr(compression, "compress") or not hasattr(compression, "decompress"):
        allowed = "hvd.Compression.none or hvd.Compression.fp16"
        raise TypeError(f"{show('compression', compression)} cannot compress: give {allowed}")
    compressed, context = compression.compress(tensor)
    array = as_input(compressed)
    output = np.empty(array.shape, array.dtype)
    request.run(_reduction(array, output, name, reduce_op, factors(prescale_factor, postscale_factor), process_set))
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
    reduce_op = reductions.choose(op, average)
    array = as_input(tensor)
    output = np.empty(array.shape, array.dtype)
    scale = factors(prescale_factor, postscale_factor)
    operation = _reduction(array, output, name, reduce_op, scale, process_set)
    return request.submit(operation, (array, output), lambda _: output)


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
    reduce_op = reductions.choose(op, average)
    array = as_in_place(tensor, "allreduce_")
    request.run(_reduction(array, array, name, reduce_op, factors(prescale_factor, postscale_factor), process_set))
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
    reduce_op = reductions.choose(op, average)
    array = as_in_place(tensor, "allreduce_async_")
    operation = _reduction(array, array, name, reduce_op, factors(prescale_factor, postscale_factor), process_set)
    return request.submit(operation, (array,), lambda _: tensor)


def _gathering(array: np.ndarray, name: str | None, process_set: ProcessSet) -> request.Operation:
    identifier = id_of(process_set)
    dtype = dtype_code(array.dtype)
    wire_name = names.wire_name("allgather", name, identifier)
    return request.Operation(abi.ALLGATHER, wire_name, identifier, dtype, array.shape, place(array))


def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> np.ndarray:
    """
    Return all ranks' arrays, joined along the first dimension in rank order. Only that dimension may differ by rank.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> hvd.allgather(np.zeros((2, 3))).shape == (2 * hvd.size(), 3)
    True
    """
    array = as_input(tensor)
    result = request.run(_gathering(array, name, process_set))
    assert result is not None
    return wrap(result, array.dtype)


def allgather_async(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Start `allgather`; `synchronize` returns the joined array."""
    array = as_input(tensor)
    operation = _gathering(array, name, process_set)
    return request.submit(operation, (array,), lambda result: wrap(result, array.dtype))


def _broadcasting(
    array: np.ndarray, output: np.ndarray, root_rank: int, name: str | None, process_set: ProcessSet
) -> request.Operation:
    identifier = id_of(process_set)
    dtype = dtype_code(array.dtype)
    root = checked_root(root_rank)
    source = place(array)
    wire_name = names.wire_name("broadcast", name, identifier)
    return request.Operation(
        abi.BROADCAST,
        wire_name,
        identifier,
        dtype,
        array.shape,
        source,
        source if output is array else place(output),
        abi.SUM,
        root,
    )


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
    output = np.empty(array.shape, array.dtype)
    request.run(_broadcasting(array, output, root_rank, name, process_set))
    return output


def broadcast_async(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `broadcast`; `synchronize` returns the new array."""
    array = as_input(tensor)
    output = np.empty(array.shape, array.dtype)
    operation = _broadcasting(array, output, root_rank, name, process_set)
    return request.submit(operation, (array, output), lambda _: output)


def broadcast_(
    tensor: np.ndarray, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> np.ndarray:
    """Overwrite `tensor` with root_rank's and return it."""
    array = as_in_place(tensor, "broadcast_")
    request.run(_broadcasting(array, array, root_rank, name, process_set))
    return tensor


def broadcast_async_(
    tensor: np.ndarray, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `broadcast_`; `synchronize` returns `tensor`."""
    array = as_in_place(tensor, "broadcast_async_")
    operation = _broadcasting(array, array, root_rank, name, process_set)
    return request.submit(operation, (array,), lambda _: tensor)


def broadcast_parameters(params: Mapping[str, np.ndarray] | Sequence[Any], root_rank: int) -> None:
    """Overwrite all arrays of a dict, or of a list of arrays or (name, array) pairs, with root_rank's."""
    if isinstance(params, Mapping):
        pairs = sorted(params.items())
    elif isinstance(params, Sequence) and not isinstance(params, (str, bytes)):
        pairs = [item if isinstance(item, tuple) else (f"parameter.{i}", item) for i, item in enumerate(params)]
    else:
        raise ValueError(f"broadcast_parameters needs a dict or a list, not {type(params).__name__}")
    handles = [broadcast_async_(array, root_rank, name) for name, array in pairs]
    for handle in handles:
        synchronize(handle)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return when every rank of the set has called it."""
    request.run(request.Operation(abi.BARRIER, b"barrier.noname", id_of(process_set)))


def poll(handle: int) -> bool:
    """Whether the operation is over, so that `synchronize` returns at once. ValueError for an unknown handle."""
    return request.poll(handle)


def synchronize(handle: int) -> np.ndarray | None:
    """
    Wait until an operation is over; return its result or raise its error. Returns None for an unknown handle.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> handle = hvd.allreduce_async([1.0, 2.0], op=hvd.Max, name="maxima")
    >>> hvd.synchronize(handle)
    array([1., 2.])
    """
    return request.synchronize(handle)
