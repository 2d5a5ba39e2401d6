# SPDX-License-Identifier: Apache-2.0
"""
Training with standalone Keras on several processes: Keras 3 on TensorFlow, JAX or PyTorch, or tf_keras.

`backend` says which one it found.

>>> import keras
>>> import numpy as np
>>> import horovod.keras as hvd
>>> hvd.init()
>>> model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
>>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * hvd.size())), "mse")
>>> start_alike = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
>>> history = model.fit(np.ones([8, 2]), np.ones([8, 1]), verbose=0, callbacks=[start_alike])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from horovod.common import joining
from horovod.common.barrier import barrier as _barrier
from horovod.common.basics import HorovodBasics
from horovod.common.counters import counters, counters_text
from horovod.common.exceptions import HorovodInternalError, HorovodSyncError, HorovodTimeoutError
from horovod.common.objects import allgather_object, broadcast_object
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.common.reductions import Adasum, Average, Max, Min, Product, Sum
from horovod.compat import bridges  # noqa: F401  (for old programs; before Keras is imported)
from horovod.keras import callbacks, elastic
from horovod.keras.which import backend
from horovod.keras.which import library as _library
from horovod.keras.which import need_tensorflow as _need_tensorflow

if backend == "tensorflow":
    from horovod._keras import loading, values
    from horovod._keras.optimizer import wrap
    from horovod._keras.settings import Settings
    from horovod.tensorflow import in_sync as _in_sync
    from horovod.tensorflow.compression import Compression
    from horovod.tensorflow.reduction import checked_groups
else:
    from horovod._keras_portable import loading, values
    from horovod._keras_portable import values as _in_sync
    from horovod._keras_portable.exchange import Compression, Settings, checked_groups
    from horovod._keras_portable.optimizer import wrap


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


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """
    Return an optimizer like the given one that applies the gradients of all ranks; by default their average.

    The same as in horovod.tensorflow.keras, which has more options.

    >>> import keras
    >>> import horovod.keras as hvd
    >>> hvd.init()
    >>> type(hvd.DistributedOptimizer(keras.optimizers.Adam())).__name__
    'Adam'
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
            groups=checked_groups(num_groups, groups),
            process_set=process_set,
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

    >>> import keras
    >>> import horovod.keras as hvd
    >>> hvd.init()
    >>> own = keras.layers.Dense(4)
    >>> optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.Adam(), local_layers=[own])
    """
    _need_tensorflow("PartialDistributedOptimizer")
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

    >>> import horovod.keras as hvd
    >>> hvd.init()
    >>> hvd.broadcast_global_variables(0)
    Traceback (most recent call last):
        ...
    RuntimeError: hvd.broadcast_global_variables() is for graphs of tf.compat.v1, ...
    """
    _need_tensorflow("broadcast_global_variables")
    return values.broadcast_global_variables(root_rank)


def check_in_sync(model_or_variables: Any, process_set: ProcessSet = global_process_set) -> None:
    """
    Compare a model's variables, or a list of variables, among the ranks by checksums.

    If they differ, every rank of the set raises HorovodSyncError, which names the first variable that differs and the
    ranks. Every rank of the set calls it with the same variables; not inside a tf.function.

    >>> import keras
    >>> import horovod.keras as hvd
    >>> hvd.init()
    >>> hvd.check_in_sync(keras.Sequential([keras.Input([2])]))
    """
    _in_sync.check_in_sync(model_or_variables, process_set)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """
    Return the reduction of the ranks' values: `op`, or else the average, or the sum with average=False.

    >>> import horovod.keras as hvd
    >>> hvd.init()
    >>> hvd.allreduce([1.0, 2.0]).numpy()
    array([1., 2.], dtype=float32)
    """
    if op is None and average is True:
        op = Average
    return values.allreduce(
        value, name, average if op is None else None, prescale_factor, postscale_factor, op, compression
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """
    Return the values of all ranks, concatenated in rank order. The first dimension may differ.

    >>> import horovod.keras as hvd
    >>> hvd.init()
    >>> hvd.allgather([7]).shape[0] == hvd.size()
    True
    """
    return values.allgather(value, name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """
    Return root_rank's value on every rank.

    >>> import horovod.keras as hvd
    >>> hvd.init()
    >>> hvd.broadcast(3, root_rank=0).numpy().item()
    3
    """
    return values.broadcast(value, root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """
    Reduce the ranks' values and return this rank's rows of the result.

    >>> import horovod.keras as hvd
    >>> hvd.init()
    >>> hvd.reducescatter([[1.0], [2.0]], op=hvd.Sum).shape[1]
    1
    """
    return values.reducescatter(value, name, op)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """
    Return when every rank of the set has called it.

    >>> import horovod.keras as hvd
    >>> hvd.init()
    >>> hvd.barrier()
    """
    _barrier(process_set)


def join() -> int:
    """
    Declare that this rank has no more data. When all ranks have, return the rank that was the last to do so.

    >>> import horovod.keras as hvd
    >>> hvd.init()
    >>> hvd.join() < hvd.size()
    True
    """
    return joining.join()


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
    >>> import keras
    >>> import horovod.keras as hvd
    >>> hvd.init()
    >>> model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    >>> model.compile(keras.optimizers.SGD(0.25), "mse")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.keras")
    ...     model = hvd.load_model(f"{folder}/model.keras")
    >>> hasattr(model.optimizer, "register_local_var")
    True
    """
    return loading.load_model(_library, filepath, custom_optimizers, custom_objects, compression, legacy_opts)


__all__ = [
    "backend",
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
