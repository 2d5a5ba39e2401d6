# SPDX-License-Identifier: Apache-2.0
"""The callbacks for Keras 3 on JAX and on PyTorch; schedules.py has what is the same on all backends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

from horovod._keras import schedules
from horovod._keras.families import chain_of, variables_of
from horovod._keras.schedules import BestModel, MetricAverage
from horovod._keras_portable import values
from horovod.common.arguments import root_rank as checked_root
from horovod.common.basics import HorovodBasics

_basics = HorovodBasics()


class BroadcastGlobalVariables:
    """Broadcasts the variables of model and optimizer once, before the first batch: Keras has made them by then."""

    def __init__(self, root_rank: int, device: str = "", local_variables: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.root_rank = checked_root(root_rank)
        self.device = device
        self.local_variables = list(local_variables or [])
        self.broadcast_done = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcast."""
        if self.broadcast_done or _basics.size() == 1:
            return
        self.broadcast_done = True
        optimizer = getattr(self.model, "optimizer", None)
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        local = {one.path for one in self.local_variables}
        every = [*self.model.weights, *variables_of(optimizer)]
        values.broadcast_variables([one for one in every if not _belongs_to(one.path, local)], self.root_rank)


def _belongs_to(path: str, local: set[str]) -> bool:
    # State that an optimizer keeps for a weight has the weight's path in its own.
    return any(path == one or one.replace("/", "_") in path for one in local)


class _Momentum:
    """Scales the momentum of an optimizer for one batch, and back."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer, self._before = optimizer, None

    def correct(self, factor: float) -> None:
        """Multiply the momentum."""
        self._before = self._optimizer.momentum
        self._optimizer.momentum = self._before * factor

    def restore(self) -> None:
        """Undo `correct`."""
        if self._before is not None:
            self._optimizer.momentum, self._before = self._before, None


class LearningRateSchedule(schedules.LearningRateSchedule):
    """Multiplies the initial learning rate by a factor that depends on the epoch."""

    @staticmethod
    def _number(value: Any) -> float:
        return float(keras.ops.convert_to_numpy(value))

    @staticmethod
    def _correction_of(model: Any) -> _Momentum | None:
        optimizer = list(chain_of(model.optimizer))[-1]
        # A compiled step of JAX has the momentum in it as a constant, so nothing can change it.
        if keras.config.backend() == "jax" or not getattr(optimizer, "momentum", 0):
            return None
        return _Momentum(optimizer)


class LearningRateWarmup(schedules.LearningRateWarmup, LearningRateSchedule):
    """Takes the learning rate from initial_lr / size to initial_lr, batch by batch."""


__all__ = [
    "BestModel",
    "BroadcastGlobalVariables",
    "LearningRateSchedule",
    "LearningRateWarmup",
    "MetricAverage",
]
