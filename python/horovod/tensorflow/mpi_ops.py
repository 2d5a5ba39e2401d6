# SPDX-License-Identifier: Apache-2.0
"""
The collective operations on dense tensors, eagerly, in tf.function and in graphs of tf.compat.v1.

Functions that begin with an underscore take the reduction as it is; horovod.tensorflow's own choose it, compress and
know sparse tensors.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common import arguments, reductions
from horovod.common.barrier import barrier as _barrier
from horovod.common.basics import HorovodBasics
from horovod.common.exceptions import HorovodUnsupportedError
from horovod.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    id_of,
    ranks_of,
    remove_process_set,
)
from horovod.common.reductions import Adasum, Average, Max, Min, Product, Sum
from horovod.tensorflow import naming, tracing
from horovod.tensorflow.native import operations

_SEVERAL_TENSORS = {
    tf.RaggedTensor: "call the operation for its flat_values and for its row_lengths(), or give its to_tensor()",
    tf.SparseTensor: "call the operation for its values and for its indices, or give tf.sparse.to_dense() of it",
}

_basics = HorovodBasics()

init = _basics.init
shutdown = _basics.shutdown
is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size = _basics.size
rank = _basics.rank
local_size = _basics.local_size
local_rank = _basics.local_rank
cross_size = _basics.cross_size
cross_rank = _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "ProcessSet",
    "Sum",
    "add_process_set",
    "global_process_set",
    "remove_process_set",
]


def _bits(factor: float) -> int:
    # An attribute of TensorFlow's type float has 32 bits, which are too few for float64.
    return struct.unpack("<q", struct.pack("<d", factor))[0]


def _reduction(op: Any, prescale_factor: Any, postscale_factor: Any, identifier: int) -> dict[str, int]:
    op = reductions.choose(op, None)
    if op == Adasum and identifier != 0:
        raise HorovodUnsupportedError(f"process_set={identifier}: hvd.Adasum works among all ranks only")
    prescale, postscale = arguments.factors(prescale_factor, postscale_factor)
    return {"reduce_op": op, "prescale_bits": _bits(prescale), "postscale_bits": _bits(postscale)}


def _known_id(process_set: ProcessSet) -> int:
    """Return the id of a set that exists; ValueError otherwise, before TensorFlow makes an error of its own."""
    identifier = id_of(process_set)
    if identifier != 0:
        ranks_of(identifier)
    return identifier


def dense_tensor(value: Any) -> tf.Tensor:
    """Return `value` as a tensor. TypeError if it is ragged or sparse: such values consist of several tensors."""
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError):
        for kind, advice in _SEVERAL_TENSORS.items():
            if isinstance(value, kind):
                raise TypeError(f"tf.{kind.__name__} cannot be used here: {advice}") from None
        raise


def _tensors(function: str, tensors: Any) -> list[tf.Tensor]:
    return [dense_tensor(tensor) for tensor in arguments.tensor_list(function, tensors)]


def _run(operation: Any, kind: str, tensors: list[tf.Tensor], inputs: tuple, place: tuple, **attributes: Any) -> Any:
    """Make a node, or run it. `place`: name, ignore_name_scope and the process set's id."""
    name, ignore_name_scope, identifier = place
    if not tf.executing_eagerly():
        tracing.refuse_xla()
    with naming.wire_name(kind, tensors, name, ignore_name_scope, identifier) as wire_name:
        return operation(
            *inputs,
            tensor_name=wire_name,
            process_set_id=identifier,
            blocking=tf.executing_eagerly(),
            **attributes,
        )


def _with_rows_unknown(output: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    if not tf.executing_eagerly() and tensor.shape.rank:
        output.set_shape([None, *tensor.shape[1:]])
    return output


def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    wire: int = 0,
) -> tf.Tensor:
    """Return the reduction of all ranks' tensors. `wire`: abi.WIRE_FLOAT16, abi.WIRE_BFLOAT16, or 0."""
    identifier = _known_id(process_set)
    attributes = {**_reduction(op, prescale_factor, postscale_factor, identifier), "wire": wire}
    tensor = dense_tensor(tensor)
    place = (name, ignore_name_scope, identifier)
    return _run(operations.horovod_allreduce, "HorovodAllreduce", [tensor], (tensor,), place, **attributes)


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    wire: int = 0,
) -> list[tf.Tensor]:
    """Return the reductions of all ranks' tensors, which are over together. Types may differ. `wire` as above."""
    identifier = _known_id(process_set)
    attributes = {**_reduction(op, prescale_factor, postscale_factor, identifier), "wire": wire}
    checked = _tensors("grouped_allreduce", tensors)
    if not checked:
        return []
    place = (name, ignore_name_scope, identifier)
    group = operations.horovod_grouped_allreduce
    return list(_run(group, "HorovodGroupedAllreduce", checked, (checked,), place, **attributes))


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """
    Return all ranks' tensors, joined along the first dimension in rank order. Only that dimension may differ by rank.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.allgather(tf.zeros([2, 3])).shape == (2 * hvd.size(), 3)
    True
    """
    identifier = _known_id(process_set)
    tensor = dense_tensor(tensor)
    place = (name, ignore_name_scope, identifier)
    output = _run(operations.horovod_allgather, "HorovodAllgather", [tensor], (tensor,), place)
    return _with_rows_unknown(output, tensor)


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """Return `allgather` of each tensor. All of them finish together."""
    identifier = _known_id(process_set)
    checked = _tensors("grouped_allgather", tensors)
    if not checked:
        return []
    place = (name, ignore_name_scope, identifier)
    outputs = _run(operations.horovod_grouped_allgather, "HorovodGroupedAllgather", checked, (checked,), place)
    return [_with_rows_unknown(output, tensor) for output, tensor in zip(outputs, checked)]


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """
    Return root_rank's tensor on every rank. root_rank is a rank of the whole job, also for a process set.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.broadcast(tf.constant([1, 2]), root_rank=0).numpy()
    array([1, 2], dtype=int32)
    """
    identifier = _known_id(process_set)
    root = arguments.root_rank(root_rank)
    tensor = dense_tensor(tensor)
    place = (name, ignore_name_scope, identifier)
    return _run(operations.horovod_broadcast, "HorovodBroadcast", [tensor], (tensor,), place, root_rank=root)


def _grouped_broadcast(
    tensors: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """As `broadcast` of each tensor; all are over together."""
    identifier = _known_id(process_set)
    root = arguments.root_rank(root_rank)
    checked = _tensors("grouped_broadcast", tensors)
    if not checked:
        return []
    place = (name, ignore_name_scope, identifier)
    group = operations.horovod_grouped_broadcast
    return list(_run(group, "HorovodGroupedBroadcast", checked, (checked,), place, root_rank=root))


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """
    Send rows of the tensor to every rank and return the rows received, in rank order.

    Without `splits` every rank gets an equal part. With it (rows for every rank) the result is a pair: the tensor, and
    how many rows came from every rank.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.alltoall(tf.zeros([hvd.size(), 2])).shape == (hvd.size(), 2)
    True
    """
    identifier = _known_id(process_set)
    tensor = dense_tensor(tensor)
    rows = _splits(splits)
    place = (name, ignore_name_scope, identifier)
    output, received = _run(operations.horovod_alltoall, "HorovodAlltoall", [tensor], (tensor, rows), place)
    output = _with_rows_unknown(output, tensor)
    if splits is None:
        return output
    if not tf.executing_eagerly():
        received.set_shape([None])
    return output, received


def _splits(splits: Any) -> tf.Tensor:
    if splits is None:
        return tf.zeros([0], tf.int32)
    if not tf.is_tensor(splits):
        return tf.constant(arguments.splits(splits), tf.int32)
    if splits.dtype != tf.int32:
        raise ValueError(f"splits holds {splits.dtype.name} instead of int32: give one whole number per rank")
    if splits.shape.rank not in (None, 1):
        raise ValueError(f"splits has {splits.shape.rank} dimensions instead of 1: give one whole number per rank")
    return splits


def _reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Return this rank's rows of the reduction of all ranks' tensors."""
    identifier = _known_id(process_set)
    attributes = _reduction(op, prescale_factor, postscale_factor, identifier)
    tensor = _with_rows(dense_tensor(tensor))
    place = (name, ignore_name_scope, identifier)
    scatter = operations.horovod_reducescatter
    return _with_rows_unknown(_run(scatter, "HorovodReducescatter", [tensor], (tensor,), place, **attributes), tensor)


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[tf.Tensor]:
    """As `_reducescatter` of each tensor; all are over together."""
    identifier = _known_id(process_set)
    attributes = _reduction(op, prescale_factor, postscale_factor, identifier)
    checked = [_with_rows(tensor) for tensor in _tensors("grouped_reducescatter", tensors)]
    if not checked:
        return []
    place = (name, ignore_name_scope, identifier)
    group = operations.horovod_grouped_reducescatter
    outputs = _run(group, "HorovodGroupedReducescatter", checked, (checked,), place, **attributes)
    return [_with_rows_unknown(output, tensor) for output, tensor in zip(outputs, checked)]


def _with_rows(tensor: tf.Tensor) -> tf.Tensor:
    if tensor.shape.rank == 0:
        raise tf.errors.InvalidArgumentError(
            None, None, "reducescatter gives each rank some of the rows, and a scalar has none: give a tensor with rows"
        )
    return tensor


def join(name: str | None = None) -> tf.Tensor:
    """
    Declare that this rank has no more data. When all ranks have, return the rank that was the last to do so.

    Until then it takes part in the others' allreduces: with zeros in sums and averages, not at all in minima, maxima
    and products. An average still divides by the number of all ranks.

    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> int(hvd.join()) < hvd.size()
    True
    """
    output = _run(operations.horovod_join, "HorovodJoin", [], (), (name or "join.noname", True, 0))
    output.set_shape([])
    return output


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """
    Return when every rank of the set has called it. For eager code.

    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.barrier()
    """
    _barrier(process_set)


def rank_op(name: str | None = None) -> tf.Tensor:
    """Return this process's rank as a tensor that is read anew at every step."""
    return operations.horovod_rank(name=name)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """Return this process's rank on its host as a tensor that is read anew at every step."""
    return operations.horovod_local_rank(name=name)


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Return the size of a process set as a tensor that is read anew at every step."""
    return operations.horovod_size(process_set_id=process_set_id, name=name)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """Return the number of processes on this host as a tensor that is read anew at every step."""
    return operations.horovod_local_size(name=name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Return 1 if this process is a member of the set, else 0, as a tensor that is read anew at every step."""
    return operations.horovod_process_set_included(process_set_id=process_set_id, name=name)


# At the end, because it uses this module: makes TensorFlow know the gradients, also if only this module is imported.
from horovod.tensorflow import op_gradients  # noqa: E402, F401
