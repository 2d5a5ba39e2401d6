# SPDX-License-Identifier: Apache-2.0
"""
Operations that are started now and waited for later, for eager code.

In a tf.function you need none: collectives there overlap with everything that does not use their results.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from horovod.common import abi, reductions, request
from horovod.common.arguments import factors, show
from horovod.common.arguments import root_rank as checked_root
from horovod.common.operation import Operation
from horovod.common.process_sets import ProcessSet, global_process_set, id_of
from horovod.tensorflow.mpi_ops import dense_tensor


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """
    Start `allreduce` and return its handle.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> handle = hvd.allreduce_async(tf.constant([1.0, 2.0]), op=hvd.Average, name="loss")
    >>> hvd.synchronize(handle).numpy()
    array([1., 2.], dtype=float32)
    """
    reduce_op = reductions.choose(op, average)
    array = _input("allreduce_async", tensor)
    output = np.empty(array.shape, array.dtype)
    operation = Operation(
        abi.ALLREDUCE,
        id_of(process_set),
        _dtype(array),
        array.shape,
        _place(array),
        _place(output),
        reduce_op,
        0,
        factors(prescale_factor, postscale_factor),
    )
    return request.submit(operation.named("allreduce", name), (array, output), lambda _: tf.convert_to_tensor(output))


def allgather_async(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Start `allgather` and return its handle."""
    array = _input("allgather_async", tensor)
    operation = Operation(abi.ALLGATHER, id_of(process_set), _dtype(array), array.shape, _place(array))

    def finish(result: Any) -> tf.Tensor:
        if result.block is None:
            return tf.zeros(result.shape, array.dtype)
        return tf.convert_to_tensor(np.asarray(result.block).view(array.dtype).reshape(result.shape))

    return request.submit(operation.named("allgather", name), (array,), finish)


def broadcast_async(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `broadcast` and return its handle."""
    array = _input("broadcast_async", tensor)
    output = np.empty(array.shape, array.dtype)
    operation = Operation(
        abi.BROADCAST,
        id_of(process_set),
        _dtype(array),
        array.shape,
        _place(array),
        _place(output),
        abi.SUM,
        checked_root(root_rank),
    )
    return request.submit(operation.named("broadcast", name), (array, output), lambda _: tf.convert_to_tensor(output))


def poll(handle: int) -> bool:
    """Return whether the operation has finished: `synchronize` then returns at once. ValueError: no such handle."""
    return request.poll(handle)


def synchronize(handle: int) -> Any:
    """Wait until an operation has finished; return its tensor or raise its error. None for an unknown handle."""
    return request.synchronize(handle)


def _input(function: str, tensor: Any) -> np.ndarray:
    if not tf.executing_eagerly():
        raise RuntimeError(f"{function} is for eager code: in a graph operations overlap by themselves")
    # Eager tensors never change, so the array may share their memory; it keeps the tensor alive.
    array = np.asarray(dense_tensor(tensor).numpy())
    return array if array.flags.c_contiguous else array.copy()


def _dtype(array: np.ndarray) -> int:
    code = abi.DTYPES.get(array.dtype.name)
    if code is None:
        raise TypeError(f"{show('tensor', array)} holds {array.dtype}, which ranks do not exchange")
    return code


def _place(array: np.ndarray) -> tuple[int, int]:
    return array.ctypes.data, array.nbytes
