# SPDX-License-Identifier: Apache-2.0
"""
Elastic training with `fit` of tf.keras.

>>> import tensorflow as tf
>>> import horovod.tensorflow.keras as hvd
>>> hvd.init()
>>> model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])
>>> model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
>>> state = hvd.elastic.KerasState(model, batch=0, epoch=0)
>>> callbacks = [
...     hvd.elastic.UpdateEpochStateCallback(state),
...     hvd.elastic.UpdateBatchStateCallback(state),
...     hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
... ]
>>> @hvd.elastic.run
... def train(state):
...     model.fit(tf.ones([8, 2]), tf.ones([8, 1]), epochs=3 - state.epoch, callbacks=callbacks, verbose=0)
>>> train(state)
>>> state.epoch
3
"""

from __future__ import annotations

from typing import Any

from tensorflow import keras as _keras

from horovod._keras import elastic as _impl
from horovod.common.elastic import run
from horovod.common.elastic_resets import rescale_lr
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.tensorflow.elastic import TensorFlowKerasState
from horovod.tensorflow.elastic_data import shard


class KerasState(TensorFlowKerasState):
    """
    A state of a Keras model and its optimizer, and of objects as attributes, such as `batch` and `epoch`.

    `optimizer` None means the one that the model was compiled with.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow.keras as hvd
    >>> hvd.init()
    >>> model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])
    >>> state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)


class CommitStateCallback(_impl.CommitState, _keras.callbacks.Callback):
    """
    Commits the state every `batches_per_commit` batches, and at the end of each epoch.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow.keras as hvd
    >>> hvd.init()
    >>> model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])
    >>> callback = hvd.elastic.CommitStateCallback(hvd.elastic.KerasState(model), batches_per_commit=10)
    """


class UpdateBatchStateCallback(_impl.UpdateBatchState, _keras.callbacks.Callback):
    """
    Keeps the number of batches that this epoch has done in `state.batch`.

    After a change of the job, `fit` goes on at this batch: earlier ones are skipped. Without this callback the epoch
    begins again.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow.keras as hvd
    >>> hvd.init()
    >>> model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])
    >>> callback = hvd.elastic.UpdateBatchStateCallback(hvd.elastic.KerasState(model, batch=0))
    """


class UpdateEpochStateCallback(_impl.UpdateEpochState, _keras.callbacks.Callback):
    """
    Keeps the number of complete epochs in `state.epoch`, over all calls of `fit`.

    Call `fit` with `epochs=total - state.epoch`, or with `initial_epoch=state.epoch, epochs=total`.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow.keras as hvd
    >>> hvd.init()
    >>> model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])
    >>> callback = hvd.elastic.UpdateEpochStateCallback(hvd.elastic.KerasState(model, epoch=0))
    """


__all__ = [
    "CommitStateCallback",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "rescale_lr",
    "run",
    "shard",
]
