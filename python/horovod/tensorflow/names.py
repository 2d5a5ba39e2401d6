# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F401  (horovod.tensorflow takes the names from here)
"""Every name of horovod.tensorflow that needs TensorFlow. Importing this imports TensorFlow."""

from horovod import __version__
from horovod.common.counters import counters, counters_text
from horovod.common.exceptions import HorovodInternalError, HorovodSyncError, HorovodTimeoutError
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
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
from horovod.tensorflow.in_sync import check_in_sync
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
