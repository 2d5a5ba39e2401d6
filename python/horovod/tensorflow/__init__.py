# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F405  (names that _load brings)
"""
Data-parallel training with TensorFlow 2.13 and newer: eagerly, in tf.function and in graphs of tf.compat.v1.

TensorFlow is imported when a program uses the first name of this module, so that horovod.tensorflow.data, whose compute
jobs have no need of TensorFlow, starts in a moment.

>>> import tensorflow as tf
>>> import horovod.tensorflow as hvd
>>> hvd.init()
>>> hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Average).numpy()
array([1., 2.], dtype=float32)
"""

import importlib
from typing import TYPE_CHECKING, Any

from horovod import __version__
from horovod.compat import bridges  # noqa: F401  (for old programs; before TensorFlow is imported)

if TYPE_CHECKING:
    from horovod.tensorflow.names import *  # noqa: F403

# What imports Keras, which takes seconds: only when somebody asks for it.
_LATER = {
    "elastic": ("horovod.tensorflow.elastic", None),
    "keras": ("horovod.tensorflow.keras", None),
    "SyncBatchNormalization": ("horovod.tensorflow.sync_batch_norm", "SyncBatchNormalization"),
}
_PACKAGES = ("data",)


def __getattr__(name: str) -> Any:
    if name in _LATER:
        module, attribute = _LATER[name]
        found = importlib.import_module(module)
        return found if attribute is None else getattr(found, attribute)
    if name in _PACKAGES:
        return importlib.import_module(f"horovod.tensorflow.{name}")
    if not name.startswith("__"):
        _load()
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _load() -> None:
    """Take over all names that need TensorFlow; importing their module has made submodules attributes of this one."""
    importlib.import_module("horovod.tensorflow.native")  # first, for it names a TensorFlow that is too old
    names = importlib.import_module("horovod.tensorflow.names")
    globals().update({name: getattr(names, name) for name in __all__})


def __dir__() -> list[str]:
    _load()
    return sorted({*__all__, *_LATER, *_PACKAGES, *(name for name in globals() if name.startswith("__"))})


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
    "check_in_sync",
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
    "HorovodSyncError",
    "HorovodTimeoutError",
]
