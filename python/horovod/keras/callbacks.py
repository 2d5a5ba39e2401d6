# SPDX-License-Identifier: Apache-2.0
"""Callbacks for `fit`; horovod.tensorflow.keras.callbacks says what each of them does."""

from __future__ import annotations

from horovod.keras.which import backend, library

if backend == "tensorflow":
    from horovod._keras import callbacks as _impl
else:
    from horovod._keras_portable import callbacks as _impl


class BroadcastGlobalVariablesCallback(_impl.BroadcastGlobalVariables, library.callbacks.Callback):
    """Gives all ranks root_rank's model and optimizer, once: on TensorFlow after the first batch, else before it."""


class MetricAverageCallback(_impl.MetricAverage, library.callbacks.Callback):
    """Replaces the metrics of every epoch by their means over the ranks."""


class LearningRateScheduleCallback(_impl.LearningRateSchedule, library.callbacks.Callback):
    """Sets the learning rate to `initial_lr * multiplier(epoch)` from start_epoch until before end_epoch."""


class LearningRateWarmupCallback(_impl.LearningRateWarmup, library.callbacks.Callback):
    """Takes the learning rate from initial_lr / size to initial_lr during the first epochs, batch by batch."""


class BestModelCheckpoint(_impl.BestModel, library.callbacks.ModelCheckpoint):
    """Saves the best model so far. Set its `filepath` before calling `fit`."""

    def __init__(
        self, monitor: str = "val_loss", verbose: int = 0, mode: str = "auto", save_freq: str | int = "epoch"
    ) -> None:
        super().__init__(monitor=monitor, verbose=verbose, mode=mode, save_freq=save_freq)
