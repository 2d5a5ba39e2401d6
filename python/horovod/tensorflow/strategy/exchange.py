# SPDX-License-Identifier: Apache-2.0
"""
Collectives that strategies run on the host: sums, averages, gathered rows and rank 0's values.

In a graph each value is an operation of its own, so it travels while the step still computes others. In eager code all
values exist already, and one grouped operation costs less.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import global_process_set
from horovod.tensorflow import mpi_ops
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import _as_before, _exchangeable
from horovod.tensorflow.naming import call_site
from horovod.tensorflow.ops import reduce_slices

HOST = "/device:CPU:0"

# Averages of these types have no meaning, so each rank keeps its value.
_NOT_NUMBERS = (tf.string, tf.bool, tf.resource, tf.variant)
# Keras numbers layers in the order in which a process creates them, and that order may differ between ranks.
_NUMBER = re.compile(r"_\d+(?=/|:|$)")


def reduce_all(tensors: Sequence[Any], average: bool, what: str = "reduce") -> list[Any]:
    """Return the sums or averages of all ranks' tensors. None stays None, tf.IndexedSlices stay sparse."""
    op = mpi_ops.Average if average else mpi_ops.Sum
    results = [value if _is_sparse(value) or value is None else tf.convert_to_tensor(value) for value in tensors]
    if mpi_ops.size() == 1:
        return results
    prefix = call_site(f"strategy.{what}")
    dense = [
        place
        for place, value in enumerate(results)
        if value is not None and not _is_sparse(value) and not (average and value.dtype in _NOT_NUMBERS)
    ]
    with tf.device(HOST):
        if tf.executing_eagerly() and len(dense) > 1:
            reduced = mpi_ops._grouped_allreduce(
                [results[place] for place in dense], name=prefix, op=op, ignore_name_scope=True
            )
        else:
            reduced = [
                mpi_ops._allreduce(results[place], name=_numbered(prefix, place), op=op, ignore_name_scope=True)
                for place in dense
            ]
        for place, value in zip(dense, reduced):
            results[place] = value
        for place, value in enumerate(results):
            if _is_sparse(value):
                results[place] = _reduced_slices(value, op, _numbered(prefix, place))
    return results


def _reduced_slices(value: tf.IndexedSlices, op: int, name: str) -> tf.IndexedSlices:
    return reduce_slices(value, op, (1.0, 1.0), Compression.none, global_process_set, name, True)


def gather(tensor: Any, axis: int) -> tf.Tensor:
    """Return the tensors of all ranks, joined along a dimension; only that dimension may differ between ranks."""
    tensor = tf.convert_to_tensor(tensor)
    if mpi_ops.size() == 1:
        return tensor
    if not tensor.shape.rank:
        raise ValueError(f"gather joins tensors along a dimension, and {tensor} has none: add one with tf.expand_dims")
    name = call_site("strategy.gather")
    with tf.device(HOST):
        if axis == 0:
            return mpi_ops.allgather(tensor, name=name, ignore_name_scope=True)
        others = [one for one in range(tensor.shape.rank) if one != axis]
        gathered = mpi_ops.allgather(tf.transpose(tensor, [axis, *others]), name=name, ignore_name_scope=True)
        places = [0] * tensor.shape.rank
        for place, one in enumerate([axis, *others]):
            places[one] = place
        return tf.transpose(gathered, places)


def from_root(tensor: Any, name: str) -> tf.Tensor:
    """Return rank 0's tensor. `name` is that of the variable that the tensor initializes."""
    if mpi_ops.size() == 1 or tensor.dtype in (tf.string, tf.resource, tf.variant):
        return tensor
    site = call_site(f"strategy.initial.{_plain(name)}")
    with tf.device(HOST):
        sent = mpi_ops.broadcast(_exchangeable(tensor), root_rank=0, name=site, ignore_name_scope=True)
        result = _as_before(sent, tensor.dtype)
    result.set_shape(tensor.shape)
    return result


def name_without_numbers(value: Any) -> str:
    """Return the name of a reduction in messages; it holds the variable's name if `value` is one."""
    name = getattr(value, "_common_name", None)
    return f"read.{_plain(name)}" if name else "reduce"


def all_ranks(flag: tf.Tensor) -> tf.Tensor:
    """Return whether a condition is true on every rank."""
    count = reduce_all([tf.cast(flag, tf.int32)], False, "agree")[0]
    return tf.equal(count, mpi_ops.size())


def _plain(name: str) -> str:
    return _NUMBER.sub("", name).replace("/", ".")


def _is_sparse(value: Any) -> bool:
    return isinstance(value, tf.IndexedSlices)


def _numbered(prefix: str, place: int) -> str:
    return f"{prefix}.{place}" if place else prefix
