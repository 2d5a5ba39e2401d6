# SPDX-License-Identifier: Apache-2.0
"""Callbacks for `fit` of tf.keras."""

from __future__ import annotations

from tensorflow import keras as _keras

from horovod._keras import callbacks as _impl


class BroadcastGlobalVariablesCallback(_impl.BroadcastGlobalVariables, _keras.callbacks.Callback):
    """
    Gives all ranks root_rank's model and optimizer at the end of the first batch, once; in elastic jobs once per `fit`.

    All ranks then go on from the same state, even if only root_rank has loaded a checkpoint. `local_variables` keep
    this rank's values, and so does what the optimizer keeps for them.

    >>> import horovod.tensorflow.keras as hvd
    >>> callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    """


class MetricAverageCallback(_impl.MetricAverage, _keras.callbacks.Callback):
    """
    Replaces the metrics of every epoch by their means over the ranks.

    Put it before callbacks that read metrics, such as ReduceLROnPlateau, ModelCheckpoint and TensorBoard: they see
    the means then, and all ranks make the same decision. ValueError if the ranks do not have the same metrics.

    >>> import horovod.tensorflow.keras as hvd
    >>> callbacks = [hvd.callbacks.MetricAverageCallback()]
    """


class LearningRateScheduleCallback(_impl.LearningRateSchedule, _keras.callbacks.Callback):
    """
    Sets the learning rate to `initial_lr * multiplier(epoch)` from start_epoch until before end_epoch.

    A number m as multiplier means m ** (epoch - start_epoch). With staircase=False it happens before every batch, with
    epochs in fractions. momentum_correction scales the optimizer's momentum by new / old rate for the batch in which
    the rate changes (arXiv 1706.02677). Give steps_per_epoch if Keras does not know it.

    >>> import horovod.tensorflow.keras as hvd
    >>> callback = hvd.callbacks.LearningRateScheduleCallback(0.4, multiplier=0.1, start_epoch=30)
    """


class LearningRateWarmupCallback(_impl.LearningRateWarmup, _keras.callbacks.Callback):
    """
    Takes the learning rate from initial_lr / size to initial_lr during the first epochs, batch by batch.

    `initial_lr` is the rate for all ranks together: usually that of one process times `hvd.size()`. With verbose=1
    rank 0 says when the warm-up is over.

    >>> import horovod.tensorflow.keras as hvd
    >>> hvd.init()
    >>> callback = hvd.callbacks.LearningRateWarmupCallback(0.1 * hvd.size(), warmup_epochs=3, verbose=1)
    """


class BestModelCheckpoint(_impl.BestModel, _keras.callbacks.ModelCheckpoint):
    """
    Saves the best model so far. Set its `filepath` before calling `fit`.

    >>> import horovod.tensorflow.keras as hvd
    >>> callback = hvd.callbacks.BestModelCheckpoint(monitor="val_loss")
    >>> callback.filepath = "best.keras"
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
    ) -> None:
        super().__init__(
            monitor=monitor, verbose=verbose, save_weights_only=save_weights_only, mode=mode, save_freq=save_freq
        )
