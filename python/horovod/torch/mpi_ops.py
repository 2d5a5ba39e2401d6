# SPDX-License-Identifier: Apache-2.0
"""All operations on tensors, with the life cycle and the ranks, under the name that programs import them from."""

from __future__ import annotations

from typing import Any

from horovod.common import request
from horovod.common.arguments import whole_number
from horovod.common.barrier import barrier as _barrier
from horovod.common.basics import HorovodBasics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.joining import join as _join
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.common.reductions import Adasum, Average, Max, Min, Product, Sum
from horovod.torch.compiling import eager
from horovod.torch.compression import Compression
from horovod.torch.exchange import (
    HorovodAllgather,
    HorovodAlltoall,
    HorovodBroadcast,
    HorovodReducescatter,
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    reducescatter,
    reducescatter_async,
)
from horovod.torch.grouped import (
    HorovodGroupedAllgather,
    HorovodGroupedAllreduce,
    HorovodGroupedReducescatter,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
)
from horovod.torch.reducing import HorovodAllreduce, allreduce, allreduce_, allreduce_async, allreduce_async_
from horovod.torch.sparse import sparse_allreduce_async

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


@eager
def barrier(process_set: ProcessSet = global_process_set) -> None:
    """
    Return when every rank of the set has called it. Threads of a rank take turns.

    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> hvd.barrier()
    """
    _barrier(process_set)


@eager
def join(device: int = -1) -> int:
    """
    Declare that this rank has no more data. When all ranks have, return the rank that was the last to do so.

    Until then it takes part in the others' allreduces: with zeros in sums, averages and Adasum, not at all in minima,
    maxima and products. An average still divides by the number of all ranks. Other operations fail on the other ranks,
    unless HOROVOD_JOIN_EXTENDED=1. `device` is for programs that give one; it has no meaning on the CPU.

    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> hvd.join() < hvd.size()
    True
    """
    whole_number("device", device, "-1")
    return _join()


@eager
def poll(handle: int) -> bool:
    """Return whether the operation has finished: `synchronize` then returns at once. ValueError: no such handle."""
    return request.poll(handle)


@eager
def synchronize(handle: int) -> Any:
    """
    Wait until an operation has finished; return its result or raise its error. Returns None for an unknown handle.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> handle = hvd.allreduce_async(torch.tensor([1.0, 2.0]), op=hvd.Max, name="maxima")
    >>> hvd.synchronize(handle)
    tensor([1., 2.])
    """
    return request.synchronize(handle)


__all__ = [
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
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
    "synchronize",
    # functions of autograd
    "HorovodAllreduce",
    "HorovodGroupedAllreduce",
    "HorovodAllgather",
    "HorovodGroupedAllgather",
    "HorovodBroadcast",
    "HorovodAlltoall",
    "HorovodReducescatter",
    "HorovodGroupedReducescatter",
    # errors
    "HorovodInternalError",
]
