# SPDX-License-Identifier: Apache-2.0
"""Elastic training with `fit`; horovod.tensorflow.keras.elastic says what each name does."""

from __future__ import annotations

from typing import Any

from horovod.common.elastic import run
from horovod.common.elastic_resets import rescale_lr
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.keras.which import backend, library, need_tensorflow

if backend == "tensorflow":
    from horovod._keras import elastic as _impl
    from horovod.tensorflow.elastic import TensorFlowKerasState
    from horovod.tensorflow.elastic_data import shard

    class KerasState(TensorFlowKerasState):
        """A state of a Keras model and its optimizer, and of objects as attributes, such as `batch` and `epoch`."""

        def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
            super().__init__(model, optimizer, **kwargs)

    class CommitStateCallback(_impl.CommitState, library.callbacks.Callback):
        """Commits the state every `batches_per_commit` batches, and at the end of each epoch."""

    class UpdateBatchStateCallback(_impl.UpdateBatchState, library.callbacks.Callback):
        """Keeps the number of batches that this epoch has done in `state.batch`, and goes on there."""

    class UpdateEpochStateCallback(_impl.UpdateEpochState, library.callbacks.Callback):
        """Keeps the number of complete epochs in `state.epoch`, over all calls of `fit`."""

else:

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        need_tensorflow(f"elastic.{name}")


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
