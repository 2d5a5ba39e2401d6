# SPDX-License-Identifier: Apache-2.0
"""
The reductions as users call them: with compression, for IndexedSlices, and with Horovod's older arguments.

They work eagerly, in tf.function and in graphs of tf.compat.v1. Wrong arguments raise TypeError, ValueError or
NotImplementedError before anything is sent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common import membership, reductions
from horovod.common.arguments import factors, show, tensor_list
from horovod.common.process_sets import ProcessSet, global_process_set, id_of
from horovod.tensorflow.compression import Compression, checked_compression, compressed, wire_of
from horovod.tensorflow.mpi_ops import (
    Average,
    Sum,
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    allgather,
    dense_tensor,
    size_op,
)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """
    Return the reduction of all ranks' tensors; by default their average.

    tf.IndexedSlices stay sparse: all ranks' rows are gathered, and for an average divided by the number of ranks.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Max).numpy()
    array([1., 2.], dtype=float32)
    """
    reduce_op = reductions.choose(op, average)
    scale = factors(prescale_factor, postscale_factor)
    checked_compression(compression)
    if isinstance(tensor, tf.IndexedSlices):
        with on_device(device_sparse):
            return reduce_slices(tensor, reduce_op, scale, compression, process_set, name, ignore_name_scope)
    with on_device(device_dense):
        wire = wire_of(compression, reduce_op)
        small, context = compressed(compression, wire, dense_tensor(tensor))
        reduced = _allreduce(
            small,
            name=name,
            op=reduce_op,
            prescale_factor=scale[0],
            postscale_factor=scale[1],
            ignore_name_scope=ignore_name_scope,
            process_set=process_set,
            wire=wire,
        )
        return compression.decompress(reduced, context)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """
    Reduce a list of tensors as one operation, all or nothing. Their types may differ; an empty list stays one.

    tf.IndexedSlices among them are reduced each on its own.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> [one.shape.rank for one in hvd.grouped_allreduce([tf.ones([2, 2]), tf.ones([3])])]
    [2, 1]
    """
    reduce_op = reductions.choose(op, average)
    scale = factors(prescale_factor, postscale_factor)
    checked_compression(compression)
    tensor_list("grouped_allreduce", tensors)
    results: list[Any] = list(tensors)
    dense = [i for i, tensor in enumerate(tensors) if not isinstance(tensor, tf.IndexedSlices)]
    if len(dense) < len(results):
        check_slices(reduce_op, scale)
    if dense:
        with on_device(device_dense):
            wire = wire_of(compression, reduce_op)
            members = [compressed(compression, wire, dense_tensor(tensors[i])) for i in dense]
            reduced = _grouped_allreduce(
                [small for small, _ in members],
                name=name,
                op=reduce_op,
                prescale_factor=scale[0],
                postscale_factor=scale[1],
                ignore_name_scope=ignore_name_scope,
                process_set=process_set,
                wire=wire,
            )
            for i, one, (_, context) in zip(dense, reduced, members):
                results[i] = compression.decompress(one, context)
    with on_device(device_sparse):
        for i, tensor in enumerate(tensors):
            if isinstance(tensor, tf.IndexedSlices):
                own_name = f"{name}.{i}" if name else None
                results[i] = reduce_slices(
                    tensor, reduce_op, scale, compression, process_set, own_name, ignore_name_scope
                )
    return results


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """
    Return this rank's rows of the average or sum of all ranks' tensors.

    If the rows do not divide evenly, the first ranks get one more.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> rows = hvd.reducescatter(tf.ones([2 * hvd.size(), 3]))
    >>> rows.shape
    TensorShape([2, 3])
    """
    _check_scattered([tensor], op)
    checked_compression(compression)
    with on_device(device_dense):
        small, context = compression.compress(dense_tensor(tensor))
        scattered = _reducescatter(
            small,
            name=name,
            op=op,
            ignore_name_scope=ignore_name_scope,
            process_set=process_set,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )
        return compression.decompress(scattered, context)


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[Any]:
    """
    Return `reducescatter` of each tensor of a list, as one operation, all or nothing.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> len(hvd.grouped_reducescatter([tf.ones([4]), tf.ones([5, 2])], op=hvd.Sum))
    2
    """
    _check_scattered(tensor_list("grouped_reducescatter", tensors), op)
    checked_compression(compression)
    if not tensors:
        return list(tensors)
    with on_device(device_dense):
        members = [compression.compress(dense_tensor(tensor)) for tensor in tensors]
        scattered = _grouped_reducescatter(
            [small for small, _ in members],
            name=name,
            op=op,
            process_set=process_set,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )
        return [compression.decompress(one, context) for one, (_, context) in zip(scattered, members)]


def _check_scattered(tensors: Sequence[Any], op: Any) -> None:
    if op not in (Average, Sum):
        raise ValueError(f"{show('op', op)}: reducescatter knows hvd.Average and hvd.Sum only")
    if any(isinstance(tensor, tf.IndexedSlices) for tensor in tensors):
        raise NotImplementedError("reducescatter of tf.IndexedSlices does not exist: convert them to tensors first")


def on_device(device: str) -> Any:
    """Return a context in which operations are placed on a device; an empty name leaves the choice to TensorFlow."""
    return tf.device(device) if device else contextlib.nullcontext()


def check_slices(reduce_op: int, scale: tuple[float, float] = (1.0, 1.0)) -> None:
    """Refuse what IndexedSlices cannot do."""
    if reduce_op not in (Average, Sum):
        raise NotImplementedError(
            f"op={reduce_op}: tf.IndexedSlices can be summed and averaged only; convert them to tensors first"
        )
    if scale != (1.0, 1.0):
        raise NotImplementedError(
            "prescale_factor and postscale_factor do not work on tf.IndexedSlices: convert them to tensors first"
        )


def current_size(process_set: ProcessSet) -> Any:
    """Return the number of ranks: in a graph of an elastic job as a tensor, because the graph outlives the number."""
    identifier = id_of(process_set)
    if membership.enabled() and not tf.executing_eagerly():
        return size_op(identifier)
    return process_set.size()


def reduce_slices(
    slices: tf.IndexedSlices,
    reduce_op: int,
    scale: tuple[float, float],
    compression: Any,
    process_set: ProcessSet,
    name: str | None,
    ignore_name_scope: bool,
) -> tf.IndexedSlices:
    """
    Gather all ranks' rows and their places. The user of the result sums rows of the same place.

    An average of integers has each place once, because a quotient of a sum is not the sum of quotients.
    """
    check_slices(reduce_op, scale)
    values = slices.values
    size = current_size(process_set)
    whole = values.dtype.is_integer
    if reduce_op == Average and not whole:
        if not values.dtype.is_floating and not values.dtype.is_complex:
            raise NotImplementedError(f"tf.IndexedSlices of {values.dtype.name} have no average: use hvd.Sum")
        # Before they travel, so that each rank divides its own rows only.
        values = values / tf.cast(size, values.dtype)
    small, context = compression.compress(values)
    options = {"ignore_name_scope": ignore_name_scope, "process_set": process_set}
    gathered = allgather(small, name=f"{name}.values" if name else None, **options)
    indices = allgather(slices.indices, name=f"{name}.indices" if name else None, **options)
    rows = compression.decompress(gathered, context)
    if reduce_op == Average and whole:
        rows, indices = _whole_average(rows, indices, size)
    return tf.IndexedSlices(rows, indices, slices.dense_shape)


def _whole_average(rows: tf.Tensor, indices: tf.Tensor, size: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Sum the rows of each place, then divide and cut off: the average that dense tensors of integers get."""
    places, place_of = tf.unique(indices)
    sums = tf.math.unsorted_segment_sum(rows, place_of, tf.size(places))
    return tf.truncatediv(sums, tf.cast(size, rows.dtype)), places
