# SPDX-License-Identifier: Apache-2.0
"""
Collective operations on NumPy arrays.

>>> import numpy as np
>>> import horovod.numpy as hvd
>>> hvd.init()
>>> hvd.allreduce(np.ones(3), op=hvd.Average)
array([1., 1., 1.])
"""

from horovod import __version__
from horovod.common.basics import HorovodBasics
from horovod.common.counters import counters, counters_text
from horovod.common.exceptions import HorovodInternalError, HorovodTimeoutError
from horovod.common.objects import allgather_object, broadcast_object
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.common.reductions import Adasum, Average, Max, Min, Product, Sum
from horovod.numpy import elastic
from horovod.numpy.adapter import empty
from horovod.numpy.compression import Compression
from horovod.numpy.exchange import alltoall, alltoall_async, reducescatter, reducescatter_async
from horovod.numpy.grouped import (
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
)
from horovod.numpy.ops import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    broadcast_parameters,
    join,
    poll,
    synchronize,
)

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
    "elastic",
    # operations
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "allgather",
    "allgather_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_parameters",
    "broadcast_object",
    "allgather_object",
    "alltoall",
    "alltoall_async",
    "reducescatter",
    "reducescatter_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "barrier",
    "join",
    "poll",
    "synchronize",
    "empty",
    # errors
    "HorovodInternalError",
    "HorovodTimeoutError",
]
