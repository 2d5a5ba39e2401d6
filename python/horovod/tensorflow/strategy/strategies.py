# SPDX-License-Identifier: Apache-2.0
"""The two strategies, which differ only in how ranks find each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod.tensorflow import mpi_ops, within
from horovod.tensorflow.local_variables import inner_variable
from horovod.tensorflow.strategy import cluster, exchange, private
from horovod.tensorflow.strategy.extended import HorovodExtended


class _DataParallel(private.Strategy):
    """
    Data-parallel training, one replica per rank.

    Variables created under `scope()` begin with rank 0's values on every rank. Optimizers sum gradients over the ranks
    inside `apply_gradients`.
    """

    # The first key of TensorFlow's own collectives, which no hvd strategy uses.
    _collective_key_base = 0

    def __init__(self, device: str | None, variables_on_host: bool, uneven_inputs: bool) -> None:
        super().__init__(HorovodExtended(self, device or _accelerator(), variables_on_host, uneven_inputs))
        setattr(self, within.MARK, True)

    def reduce(self, reduce_op: Any, value: Any, axis: int | None = None) -> Any:
        """Return the sum or average of all ranks' values, first along `axis` where one is given."""
        return super().reduce(reduce_op, value, axis)

    def average_local_variables(self, variables: Iterable[Any]) -> None:
        """
        Overwrite variables that ranks have changed locally with their averages; call it on every rank.

        Moving statistics of Keras 3's BatchNormalization are such variables. Integers and strings keep their values.
        """
        components = [one for one in map(_component, variables) if one.dtype.is_floating]
        averages = exchange.reduce_all([one.read_value() for one in components], True, "average_local_variables")
        for one, average in zip(components, averages):
            one.assign(average)


class HorovodStrategy(_DataParallel):
    """
    Data-parallel training among the ranks of a launcher; without a launcher, in this process alone.

    `device` runs the forward and backward pass; the default is the GPU of this rank, or the CPU if there is no GPU.
    With `variables_on_host`, weights and optimizer state live on the CPU, and updates run there while the device
    computes the gradients of earlier layers. With `uneven_inputs`, a rank whose input has ended continues with empty
    batches until all inputs have ended, which costs a sum of one number per step if the input is finite.

    >>> import tensorflow as tf
    >>> from horovod.tensorflow.strategy import HorovodStrategy
    >>> strategy = HorovodStrategy()
    >>> with strategy.scope():
    ...     weight = tf.Variable(3.0)
    >>> strategy.reduce("MEAN", strategy.run(lambda: weight * 2.0)).numpy().item()
    6.0
    """

    def __init__(self, device: str | None = None, variables_on_host: bool = False, uneven_inputs: bool = True) -> None:
        mpi_ops.init()
        super().__init__(device, variables_on_host, uneven_inputs)


class MultiWorkerStrategy(_DataParallel):
    """
    Data-parallel training among the tasks of a cluster: those of `cluster_resolver`, by default those of TF_CONFIG.

    Start the tasks in any order. Each waits 600 s for the others unless HOROVOD_START_TIMEOUT is set. Tasks find each
    other at the address of the chief, or of worker 0. Tasks on several hosts need HOROVOD_TOKEN_FILE. No
    tf.distribute.Server is needed. The other arguments are those of HorovodStrategy.

    >>> from horovod.tensorflow.strategy import MultiWorkerStrategy
    >>> MultiWorkerStrategy().num_replicas_in_sync >= 1
    True
    """

    def __init__(
        self,
        cluster_resolver: Any = None,
        device: str | None = None,
        variables_on_host: bool = False,
        uneven_inputs: bool = True,
    ) -> None:
        self._resolver = cluster_resolver or tf.distribute.cluster_resolver.TFConfigClusterResolver()
        found = cluster.of_resolver(self._resolver)
        cluster.join(found)
        super().__init__(device, variables_on_host, uneven_inputs)
        if found is not cluster.ALONE:
            self.extended._task_type, self.extended._task_id = found.task[:2]

    @property
    def cluster_resolver(self) -> Any:
        """The resolver that the strategy was made with."""
        return self._resolver


def _accelerator() -> str:
    # A program that makes one GPU visible per rank has it as number 0; other programs share the visible GPUs.
    found = tf.config.list_logical_devices("GPU")
    return f"/device:GPU:{mpi_ops.local_rank() % len(found)}" if found else exchange.HOST


def _component(variable: Any) -> tf.Variable:
    target = inner_variable(variable)
    return target.values[0] if isinstance(target, private.DistributedVariable) else target
