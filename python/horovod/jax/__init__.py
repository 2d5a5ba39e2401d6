# SPDX-License-Identifier: Apache-2.0
"""
Data-parallel training with JAX 0.4.38 and newer. Each rank computes on one device, which is the CPU.

>>> import jax.numpy as jnp
>>> import horovod.jax as hvd
>>> hvd.init()
>>> hvd.allreduce(jnp.array([1.0, 2.0]), op=hvd.Average)
Array([1., 2.], dtype=float32)
"""

from horovod import __version__
from horovod.common.basics import HorovodBasics
from horovod.common.counters import counters, counters_text
from horovod.common.exceptions import HorovodInternalError, HorovodSyncError, HorovodTimeoutError
from horovod.common.objects import allgather_object, broadcast_object
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.common.reductions import Adasum, Average, Max, Min, Product, Sum
from horovod.jax import elastic
from horovod.jax.functions import broadcast_parameters, check_in_sync
from horovod.jax.ops import (
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from horovod.jax.training import DistributedGradientTransformation, value_and_grad
from horovod.numpy import join
from horovod.numpy.compression import Compression

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
    "__version__",
    # life cycle and ranks
    "init",
    "shutdown",
    "is_initialized",
    "start_timeline",
    "stop_timeline",
    "size",
    "rank",
    "local_size",
    "local_rank",
    "cross_size",
    "cross_rank",
    "is_homogeneous",
    "counters",
    "counters_text",
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
    # operations
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_parameters",
    "check_in_sync",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "reducescatter",
    # training
    "elastic",
    "DistributedGradientTransformation",
    "value_and_grad",
    # errors
    "HorovodInternalError",
    "HorovodTimeoutError",
    "HorovodSyncError",
]
