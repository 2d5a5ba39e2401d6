# SPDX-License-Identifier: Apache-2.0
"""
Training with tf.keras on several processes.

>>> import tensorflow as tf
>>> import horovod.tensorflow.keras as hvd
>>> hvd.init()
>>> model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])
>>> model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1 * hvd.size())), "mse")
>>> start_alike = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
>>> history = model.fit(tf.ones([8, 2]), tf.ones([8, 1]), verbose=0, callbacks=[start_alike])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorflow import keras as _keras

from horovod._keras import loading, values
from horovod._keras.optimizer import wrap
from horovod._keras.settings import Settings
from horovod.common.counters import counters, counters_text
from horovod.common.exceptions import HorovodInternalError, HorovodSyncError, HorovodTimeoutError
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import allgather_object, broadcast_object
from horovod.tensorflow.in_sync import check_in_sync
from horovod.tensorflow.keras import callbacks, elastic
from horovod.tensorflow.mpi_ops import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    barrier,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from horovod.tensorflow.reduction import checked_groups


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """
    Return an optimizer like the given one that applies the gradients of all ranks; by default their average.

    It is of a subclass of the optimizer's class, with its state, and is saved as the plain optimizer: files load with
    and without this package. Optimizers of Keras 3, of tf_keras and legacy ones are taken, LossScaleOptimizer among
    them. Clipping, weight decay and moving averages see the reduced gradients. With `backward_passes_per_step` n,
    gradients are added up here and reduced at every n-th call; with `average_aggregated_gradients` the sum is divided
    by n. `groups` reduces some gradients together: a number of groups, or lists of variables.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow.keras as hvd
    >>> hvd.init()
    >>> optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.5))
    >>> type(optimizer).__name__
    'SGD'
    >>> weights = tf.Variable(3.0)
    >>> step = optimizer.apply_gradients([(tf.constant(2.0), weights)])
    >>> weights.numpy().item()
    2.0
    """
    return wrap(
        optimizer,
        Settings(
            name,
            device_dense,
            device_sparse,
            compression,
            sparse_as_dense,
            gradient_predivide_factor,
            op,
            backward_passes_per_step,
            average_aggregated_gradients,
            checked_groups(num_groups, groups),
            process_set,
            scale_local_gradients,
        ),
    )


def PartialDistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """
    Return a `DistributedOptimizer` that does not reduce the gradients of some layers.

    `local_layers` is a layer or a list of layers, built or not. Their gradients are divided by the number of ranks
    unless scale_local_gradients=False.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow.keras as hvd
    >>> hvd.init()
    >>> own = tf.keras.layers.Dense(4)
    >>> optimizer = hvd.PartialDistributedOptimizer(tf.keras.optimizers.Adam(), local_layers=[own])
    """
    return wrap(
        optimizer,
        Settings(
            name,
            device_dense,
            device_sparse,
            compression,
            sparse_as_dense,
            gradient_predivide_factor,
            op,
            backward_passes_per_step,
            average_aggregated_gradients,
            checked_groups(0, groups),
            process_set,
            scale_local_gradients,
            local_layers,
        ),
    )


def broadcast_global_variables(root_rank: int) -> Any:
    """
    Overwrite all variables of Keras's session with root_rank's; RuntimeError if TensorFlow runs eagerly.

    >>> import horovod.tensorflow.keras as hvd
    >>> hvd.init()
    >>> hvd.broadcast_global_variables(0)
    Traceback (most recent call last):
        ...
    RuntimeError: hvd.broadcast_global_variables() is for graphs of tf.compat.v1, ...
    """
    return values.broadcast_global_variables(root_rank)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """
    Return the reduction of the ranks' values; by default their average.

    >>> import horovod.tensorflow.keras as hvd
    >>> hvd.init()
    >>> hvd.allreduce([1.0, 2.0], op=hvd.Average).numpy()
    array([1., 2.], dtype=float32)
    """
    return values.allreduce(value, name, average, prescale_factor, postscale_factor, op, compression)


def allgather(value: Any, name: str | None = None) -> Any:
    """
    Return the values of all ranks, concatenated in rank order. The first dimension may differ.

    >>> import horovod.tensorflow.keras as hvd
    >>> hvd.init()
    >>> hvd.allgather([7]).shape[0] == hvd.size()
    True
    """
    return values.allgather(value, name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """
    Return root_rank's value on every rank.

    >>> import horovod.tensorflow.keras as hvd
    >>> hvd.init()
    >>> hvd.broadcast(3, root_rank=0).numpy().item()
    3
    """
    return values.broadcast(value, root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """
    Reduce the ranks' values and return this rank's rows of the result.

    >>> import horovod.tensorflow.keras as hvd
    >>> hvd.init()
    >>> hvd.reducescatter([[1.0], [2.0]], op=hvd.Sum).shape[1]
    1
    """
    return values.reducescatter(value, name, op)


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """
    Return a saved model whose optimizer is distributed and goes on in the state in which it was saved.

    It does not matter whether the optimizer was distributed when the model was saved. `custom_optimizers` are classes
    of optimizers that Keras does not know; `legacy_opts` makes legacy optimizers out of the file's names.

    >>> import tempfile
    >>> import tensorflow as tf
    >>> import horovod.tensorflow.keras as hvd
    >>> hvd.init()
    >>> model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])
    >>> model.compile(tf.keras.optimizers.SGD(0.25), "mse")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.keras")
    ...     model = hvd.load_model(f"{folder}/model.keras")
    >>> hasattr(model.optimizer, "register_local_var")
    True
    """
    return loading.load_model(_keras, filepath, custom_optimizers, custom_objects, compression, legacy_opts)


__all__ = [
    # life cycle and ranks
    "init",
    "shutdown",
    "is_initialized",
    "start_timeline",
    "stop_timeline",
    "counters",
    "counters_text",
    "size",
    "rank",
    "local_size",
    "local_rank",
    "cross_size",
    "cross_rank",
    "is_homogeneous",
    # what this build can use
    "mpi_threads_supported",
    "mpi_enabled",
    "mpi_built",
    "gloo_enabled",
    "gloo_built",
    "nccl_built",
    "ddl_built",
    "ccl_built",
    "cuda_built",
    "rocm_built",
    # process sets
    "ProcessSet",
    "add_process_set",
    "global_process_set",
    "remove_process_set",
    # reductions
    "Average",
    "Sum",
    "Adasum",
    "Min",
    "Max",
    "Product",
    "Compression",
    # training
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "broadcast_global_variables",
    "check_in_sync",
    "load_model",
    "callbacks",
    "elastic",
    # operations on values
    "allreduce",
    "allgather",
    "broadcast",
    "reducescatter",
    # Python objects, and waiting for each other
    "allgather_object",
    "broadcast_object",
    "barrier",
    "join",
    # errors
    "HorovodInternalError",
    "HorovodSyncError",
    "HorovodTimeoutError",
]
