# SPDX-License-Identifier: Apache-2.0
"""Gradients of the collective operations. Importing this makes them known to TensorFlow."""

from __future__ import annotations

import struct
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set, ranks_of
from horovod.tensorflow import mpi_ops


def _set_of(op: tf.Operation) -> ProcessSet:
    identifier = int(op.get_attr("process_set_id"))
    if identifier == 0:
        return global_process_set
    found = ProcessSet(ranks_of(identifier))
    found.process_set_id = identifier
    return found


def _factor(op: tf.Operation, attribute: str) -> float:
    return struct.unpack("<d", struct.pack("<q", int(op.get_attr(attribute))))[0]


def _reduction(op: tf.Operation) -> dict[str, Any]:
    reduce_op = int(op.get_attr("reduce_op"))
    if reduce_op in (mpi_ops.Min, mpi_ops.Max, mpi_ops.Product):
        raise NotImplementedError("minima, maxima and products of ranks have no gradient: use hvd.Sum or hvd.Average")
    return {
        "op": reduce_op,
        "prescale_factor": _factor(op, "prescale_bits"),
        "postscale_factor": _factor(op, "postscale_bits"),
        "process_set": _set_of(op),
        "wire": int(op.get_attr("wire")),
    }


def _filled(op: tf.Operation, gradients: tuple) -> list[tf.Tensor]:
    """Return a gradient for every output: results that are not used have none."""
    return [tf.zeros_like(output) if gradient is None else gradient for output, gradient in zip(op.outputs, gradients)]


@tf.RegisterGradient("HorovodAllreduce")
def _of_allreduce(op: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    return mpi_ops._allreduce(gradient, **_reduction(op))


@tf.RegisterGradient("HorovodGroupedAllreduce")
def _of_grouped_allreduce(op: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor]:
    return mpi_ops._grouped_allreduce(_filled(op, gradients), **_reduction(op))


def _own_rank() -> Any:
    """
    Return this process's rank; in a graph as a tensor, so that the graph is the same on all ranks.

    TensorFlow removes from a graph what has no effect. In equal graphs it removes a collective on all ranks or on none.
    """
    return mpi_ops.rank() if tf.executing_eagerly() else mpi_ops.rank_op()


def _own_rows(tensor: tf.Tensor, gathered: tf.Tensor, process_set: ProcessSet) -> tf.Tensor:
    """Return what this rank's tensor contributed rows to."""
    rows = tf.shape(tensor)[:1]
    all_rows = mpi_ops.allgather(rows, process_set=process_set)
    before = tf.constant(ranks_of(process_set.process_set_id or 0)) < _own_rank()
    begin = tf.reduce_sum(tf.where(before, all_rows, 0))
    return gathered[begin : begin + rows[0]]


@tf.RegisterGradient("HorovodAllgather")
def _of_allgather(op: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    process_set = _set_of(op)
    average = mpi_ops._allreduce(gradient, op=mpi_ops.Average, process_set=process_set)
    return _own_rows(op.inputs[0], average, process_set)


@tf.RegisterGradient("HorovodGroupedAllgather")
def _of_grouped_allgather(op: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor]:
    process_set = _set_of(op)
    filled = _filled(op, gradients)
    averages = mpi_ops._grouped_allreduce(filled, op=mpi_ops.Average, process_set=process_set)
    return [_own_rows(tensor, average, process_set) for tensor, average in zip(op.inputs, averages)]


@tf.RegisterGradient("HorovodBroadcast")
def _of_broadcast(op: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    return _at_root(op, mpi_ops._allreduce(gradient, op=mpi_ops.Average, process_set=_set_of(op)))


@tf.RegisterGradient("HorovodGroupedBroadcast")
def _of_grouped_broadcast(op: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor]:
    averages = mpi_ops._grouped_allreduce(_filled(op, gradients), op=mpi_ops.Average, process_set=_set_of(op))
    return [_at_root(op, average) for average in averages]


def _at_root(op: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    is_root = tf.equal(_own_rank(), int(op.get_attr("root_rank")))
    return tf.where(is_root, gradient, tf.zeros_like(gradient))


@tf.RegisterGradient("HorovodAlltoall")
def _of_alltoall(op: tf.Operation, gradient: tf.Tensor, _: tf.Tensor) -> list:
    rows, _ = mpi_ops.alltoall(gradient, splits=op.outputs[1], process_set=_set_of(op))
    # Rows of the input that were sent to nobody have had no effect.
    left = tf.shape(op.inputs[0])[0] - tf.shape(rows)[0]
    nothing = tf.zeros(tf.concat([[left], tf.shape(rows)[1:]], 0), rows.dtype)
    return [tf.concat([rows, nothing], 0), None]


def _scattered(op: tf.Operation, gradient: tf.Tensor, process_set: ProcessSet) -> tf.Tensor:
    factor = _factor(op, "prescale_bits") * _factor(op, "postscale_bits")
    if int(op.get_attr("reduce_op")) == mpi_ops.Sum:
        factor *= len(ranks_of(process_set.process_set_id or 0))
    return gradient * tf.cast(factor, gradient.dtype) if factor != 1.0 else gradient


@tf.RegisterGradient("HorovodReducescatter")
def _of_reducescatter(op: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    process_set = _set_of(op)
    return mpi_ops.allgather(_scattered(op, gradient, process_set), process_set=process_set)


@tf.RegisterGradient("HorovodGroupedReducescatter")
def _of_grouped_reducescatter(op: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor]:
    process_set = _set_of(op)
    scattered = [_scattered(op, gradient, process_set) for gradient in _filled(op, gradients)]
    return mpi_ops.grouped_allgather(scattered, process_set=process_set)


for _query in ("Rank", "LocalRank", "Size", "LocalSize", "ProcessSetIncluded", "Join"):
    tf.no_gradient("Horovod" + _query)
