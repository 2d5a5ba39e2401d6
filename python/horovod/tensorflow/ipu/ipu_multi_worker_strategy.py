# SPDX-License-Identifier: Apache-2.0
"""`IPUMultiWorkerStrategy`, the old name of MultiWorkerStrategy."""

from __future__ import annotations

from typing import Any

from horovod.tensorflow.ipu.devices import found
from horovod.tensorflow.strategy import MultiWorkerStrategy


class IPUMultiWorkerStrategy(MultiWorkerStrategy):
    """
    MultiWorkerStrategy. `ipu_device` may name any device; the name of an IPU means the default device.

    >>> import tensorflow as tf
    >>> cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    >>> IPUMultiWorkerStrategy(cluster, variables_on_host=True).num_replicas_in_sync >= 1
    True
    """

    def __init__(
        self, cluster_resolver: Any, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False
    ) -> None:
        super().__init__(cluster_resolver, found(ipu_device), variables_on_host)


IPUMultiWorkerStrategyV1 = IPUMultiWorkerStrategy
