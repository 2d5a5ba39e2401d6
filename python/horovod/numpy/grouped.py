# SPDX-License-Identifier: Apache-2.0
"""
Operations on lists of arrays: all or none of a list is done, and all of it is over at the same time.

Every rank gives lists of the same length. A list has one name, and one handle where the function is asynchronous. An
empty list is returned as it is. Other conventions as in ops.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import numpy as np

from horovod.common import reductions, request
from horovod.common.arguments import factors, tensor_list
from horovod.common.operation import Operation, name_group
from horovod.common.process_sets import ProcessSet, global_process_set, id_of
from horovod.numpy.adapter import as_in_place, as_input, new_output, wrap
from horovod.numpy.compression import Compression, checked_compression, compressed
from horovod.numpy.operations import gathering, reduction, scattering


def _each(tensors: Sequence[Any], function: Callable[[Any], Any]) -> list[Any]:
    """Apply a function to every member; an error says which one it was."""
    results = []
    for i, tensor in enumerate(tensors):
        try:
            results.append(function(tensor))
        except (TypeError, ValueError) as error:
            raise type(error)(f"tensors[{i}]: {error}") from None
    return results


def _in_place(tensors: Sequence[Any], function: str) -> list[np.ndarray]:
    arrays = _each(tensors, lambda tensor: as_in_place(tensor, function))
    # All members are written at the same time.
    places = sorted((array.ctypes.data, array.nbytes, i) for i, array in enumerate(arrays) if array.nbytes > 0)
    for (begin, size, first), (other, _, second) in zip(places, places[1:]):
        if begin + size > other:
            first, second = sorted((first, second))
            raise ValueError(
                f"{function} works in place: tensors[{first}] and tensors[{second}] share memory; give separate "
                "arrays, or use the form without _"
            )
    return arrays


class _Reductions:
    """The members of a grouped allreduce."""

    def __init__(
        self,
        arrays: list[np.ndarray],
        outputs: list[np.ndarray],
        reduce_op: int,
        scale: tuple[float, float],
        process_set: ProcessSet,
        wires: Sequence[int] | None = None,
    ) -> None:
        id_of(process_set)  # before the members: it is no fault of the first
        self.outputs = outputs
        self.keep = (arrays, outputs)
        members = list(zip(arrays, outputs, wires or [0] * len(arrays)))
        self._operations = _each(
            members, lambda member: reduction(member[0], member[1], reduce_op, scale, process_set, member[2])
        )

    def run(self, name: str | None) -> None:
        request.run_group(name_group(self._operations, "grouped_allreduce", name), self.keep)

    def submit(self, name: str | None, result: Any) -> int:
        operations = name_group(self._operations, "grouped_allreduce", name)
        return request.submit_group(operations, self.keep, lambda _: result)


def _empty_like(arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [new_output(array) for array in arrays]


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Sequence[np.ndarray]:
    """
    Return the reductions of all ranks' arrays, one for each of the list; by default averages.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> hvd.grouped_allreduce([[1.0, 2.0], 3.0], name="layers")
    [array([1., 2.]), array(3.)]
    """
    reduce_op = reductions.choose(op, average)
    tensors = tensor_list("grouped_allreduce", tensors)
    scale = factors(prescale_factor, postscale_factor)
    checked_compression(compression)
    members = _each(tensors, lambda tensor: compressed(compression, tensor, reduce_op))
    arrays = [array for array, _, _ in members]
    wires = [wire for _, _, wire in members]
    group = _Reductions(arrays, _empty_like(arrays), reduce_op, scale, process_set, wires)
    if not tensors:
        return tensors
    group.run(name)
    return [compression.decompress(one, context) for one, (_, context, _) in zip(group.outputs, members)]


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `grouped_allreduce`; `synchronize` returns the list of new arrays."""
    reduce_op = reductions.choose(op, average)
    tensors = tensor_list("grouped_allreduce_async", tensors)
    arrays = _each(tensors, as_input)
    scale = factors(prescale_factor, postscale_factor)
    group = _Reductions(arrays, _empty_like(arrays), reduce_op, scale, process_set)
    return group.submit(name, group.outputs) if tensors else request.finished(tensors)


def grouped_allreduce_(
    tensors: Sequence[np.ndarray],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Sequence[np.ndarray]:
    """Reduce in place and return `tensors`. The arrays must not share memory."""
    reduce_op = reductions.choose(op, average)
    arrays = _in_place(tensor_list("grouped_allreduce_", tensors), "grouped_allreduce_")
    group = _Reductions(arrays, arrays, reduce_op, factors(prescale_factor, postscale_factor), process_set)
    if tensors:
        group.run(name)
    return tensors


def grouped_allreduce_async_(
    tensors: Sequence[np.ndarray],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `grouped_allreduce_`; `synchronize` returns `tensors`."""
    reduce_op = reductions.choose(op, average)
    arrays = _in_place(tensor_list("grouped_allreduce_async_", tensors), "grouped_allreduce_async_")
    group = _Reductions(arrays, arrays, reduce_op, factors(prescale_factor, postscale_factor), process_set)
    return group.submit(name, tensors) if tensors else request.finished(tensors)


def _wrap_all(results: list[request.Result], arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [wrap(result, array.dtype) for result, array in zip(results, arrays)]


def _gatherings(arrays: list[np.ndarray], process_set: ProcessSet) -> list[Operation]:
    id_of(process_set)
    return _each(arrays, lambda array: gathering(array, process_set))


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Sequence[np.ndarray]:
    """
    Return `allgather` of each array of the list.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> one, two = hvd.grouped_allgather([[1], [[2.0, 3.0]]])
    >>> one.shape == (hvd.size(),), two.shape == (hvd.size(), 2)
    (True, True)
    """
    arrays = _each(tensor_list("grouped_allgather", tensors), as_input)
    operations = _gatherings(arrays, process_set)
    if not tensors:
        return tensors
    results = request.run_group(name_group(operations, "grouped_allgather", name), arrays)
    return _wrap_all(results, arrays)


def grouped_allgather_async(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `grouped_allgather`; `synchronize` returns the list of joined arrays."""
    arrays = _each(tensor_list("grouped_allgather_async", tensors), as_input)
    operations = _gatherings(arrays, process_set)
    if not tensors:
        return request.finished(tensors)
    operations = name_group(operations, "grouped_allgather", name)
    return request.submit_group(operations, arrays, lambda results: _wrap_all(results, arrays))


def _scatterings(
    arrays: list[np.ndarray], reduce_op: int, scale: tuple[float, float], process_set: ProcessSet
) -> list[Operation]:
    id_of(process_set)
    return _each(arrays, lambda array: scattering(array, reduce_op, scale, process_set))


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = reductions.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Sequence[np.ndarray]:
    """
    Return `reducescatter` of each array of the list.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> hvd.grouped_reducescatter([np.ones(hvd.size()), np.zeros((hvd.size(), 2))], op=hvd.Average)
    [array([1.]), array([[0., 0.]])]
    """
    reduce_op = reductions.choose(op, None)
    tensors = tensor_list("grouped_reducescatter", tensors)
    members = _each(tensors, checked_compression(compression).compress)
    arrays = _each([one for one, _ in members], as_input)
    operations = _scatterings(arrays, reduce_op, factors(prescale_factor, postscale_factor), process_set)
    if not tensors:
        return tensors
    results = request.run_group(name_group(operations, "grouped_reducescatter", name), arrays)
    outputs = _wrap_all(results, arrays)
    return [compression.decompress(one, context) for one, (_, context) in zip(outputs, members)]


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = reductions.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start `grouped_reducescatter`; `synchronize` returns the list of this rank's rows."""
    reduce_op = reductions.choose(op, None)
    arrays = _each(tensor_list("grouped_reducescatter_async", tensors), as_input)
    operations = _scatterings(arrays, reduce_op, factors(prescale_factor, postscale_factor), process_set)
    if not tensors:
        return request.finished(tensors)
    operations = name_group(operations, "grouped_reducescatter", name)
    return request.submit_group(operations, arrays, lambda results: _wrap_all(results, arrays))
