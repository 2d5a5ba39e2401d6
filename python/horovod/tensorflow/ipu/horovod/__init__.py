# SPDX-License-Identifier: Apache-2.0
"""
The collective operations, under the module name of Graphcore's TensorFlow.

>>> from horovod.tensorflow.ipu import horovod as hvd
>>> hvd.init()
>>> hvd.size() >= 1
True
"""

from horovod.tensorflow import (
    Adasum,
    Average,
    Sum,
    allgather,
    allreduce,
    broadcast,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from horovod.tensorflow.ipu.horovod import ipu_horovod_strategy

__all__ = [
    "Adasum",
    "Average",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "init",
    "ipu_horovod_strategy",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]
