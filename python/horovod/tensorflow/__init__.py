# SPDX-License-Identifier: Apache-2.0
"""
Data-parallel training with TensorFlow 2.13 and newer: eagerly, in tf.function and in graphs of tf.compat.v1.

>>> import tensorflow as tf
>>> import horovod.tensorflow as hvd
>>> hvd.init()
>>> hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Average).numpy()
array([1., 2.], dtype=float32)
"""

import importlib
from typing import Any

from horovod import __version__
from horovod.common.counters import counters, counters_text
from horovod.common.exceptions import HorovodInternalError, HorovodTimeoutError
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.tensorflow import op_gradients  # noqa: F401  (makes TensorFlow know them)
from horovod.tensorflow.aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (
    allgather_object,
    broadcast_,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.handles import allgather_async, allreduce_async, broadcast_async, poll, synchronize
from horovod.tensorflow.hook import BroadcastGlobalVariablesHook
from horovod.tensorflow.mpi_ops import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    allgather,
    alltoall,
    barrier,
    broadcast,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    grouped_allgather,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_rank_op,
    local_size,
    local_size_op,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    process_set_included_op,
    rank,
    rank_op,
    rocm_built,
    shutdown,
    size,
    size_op,
    start_timeline,
    stop_timeline,
)
from horovod.tensorflow.ops import allreduce, grouped_allreduce, grouped_reducescatter, reducescatter
from horovod.tensorflow.optimizer import DistributedOptimizer
from horovod.tensorflow.reduction import _make_allreduce_grads_fn
from horovod.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from horovod.tensorflow.util import (
    _cache,
    _executing_eagerly,
    _make_subgraph,
    check_extension,
    check_num_rank_power_of_2,
    gpu_available,
    handle_average_backwards_compatibility,
    refs_to_vars,
    split_list,
    vars_to_refs,
)

# What imports Keras, which takes seconds: only when somebody asks for it.
_LATER = {
    "keras": ("horovod.tensorflow.keras", None),
    "SyncBatchNormalization": ("horovod.tensorflow.sync_batch_norm", "SyncBatchNormalization"),
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        module, attribute = _LATER[name]
        found = importlib.import_module(module)
        return found if attribute is None else getattr(found, attribute)
    if name in ("elastic", "data"):
        raise AttributeError(f"horovod.tensorflow.{name} does not exist in this release yet")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


__all__ = [
    "__version__",
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
    "size_op",
    "rank_op",
    "local_size_op",
    "local_rank_op",
    "process_set_included_op",
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
    "gpu_available",
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
    # operations
    "allreduce",
    "grouped_allreduce",
    "allgather",
    "grouped_allgather",
    "broadcast",
    "broadcast_",
    "alltoall",
    "reducescatter",
    "grouped_reducescatter",
    "barrier",
    "join",
    # eager operations that are waited for later
    "allreduce_async",
    "allgather_async",
    "broadcast_async",
    "poll",
    "synchronize",
    # the state of one rank for all
    "broadcast_variables",
    "broadcast_global_variables",
    "BroadcastGlobalVariablesHook",
    "broadcast_object",
    "broadcast_object_fn",
    "allgather_object",
    # training
    "DistributedOptimizer",
    "DistributedGradientTape",
    "PartialDistributedGradientTape",
    "LocalGradientAggregationHelper",
    # helpers that programs import
    "check_extension",
    "check_num_rank_power_of_2",
    "handle_average_backwards_compatibility",
    "refs_to_vars",
    "split_list",
    "vars_to_refs",
    "_allreduce",
    "_cache",
    "_executing_eagerly",
    "_grouped_allreduce",
    "_grouped_reducescatter",
    "_make_allreduce_grads_fn",
    "_make_subgraph",
    "_reducescatter",
    # errors
    "HorovodInternalError",
    "HorovodTimeoutError",
]
