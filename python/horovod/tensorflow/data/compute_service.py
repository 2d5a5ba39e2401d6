# SPDX-License-Identifier: Apache-2.0
"""
TensorFlow's data service with Horovod: the names that training scripts import.

Importing this module adds `send_to_data_service` to tf.data.Dataset as soon as the program has TensorFlow. A rank of a
compute job has no need of TensorFlow and does not import it.
"""

from __future__ import annotations

from horovod.tensorflow.data import methods
from horovod.tensorflow.data.client import ComputeClient
from horovod.tensorflow.data.config import TfDataServiceConfig
from horovod.tensorflow.data.exactly_once import exactly_once
from horovod.tensorflow.data.job import compute_worker_fn
from horovod.tensorflow.data.registry import TimeoutException
from horovod.tensorflow.data.send import send_to_data_service
from horovod.tensorflow.data.service import ComputeService
from horovod.tensorflow.data.training_side import tf_data_service

methods.add()

__all__ = [
    "ComputeClient",
    "ComputeService",
    "TfDataServiceConfig",
    "TimeoutException",
    "compute_worker_fn",
    "exactly_once",
    "send_to_data_service",
    "tf_data_service",
]
