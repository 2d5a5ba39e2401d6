# SPDX-License-Identifier: Apache-2.0
"""
The callbacks, for whichever Keras: each is put before that one's Callback as a base class.

What they exchange is Python objects and whole variables, so they work eagerly and in sessions alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod._keras import schedules, values, xla
from horovod._keras.families import variables_of
from horovod._keras.momentum import MomentumCorrection
from horovod._keras.optimizer import is_exchanging
from horovod._keras.schedules import BestModel, MetricAverage
from horovod.common import membership
from horovod.common.arguments import root_rank as checked_root
from horovod.tensorflow.functions import broadcast_variables
from horovod.tensorflow.local_variables import inner_variable, key_of


class BroadcastGlobalVariables:
    """Broadcasts the variables of model and optimizer once, when the first batch has made them all."""

    def __init__(self, root_rank: int, device: str = "", local_variables: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.root_rank = checked_root(root_rank)
        self.device = device
        self.local_variables = list(local_variables or [])
        self.broadcast_done = False

    def set_model(self, model: Any) -> None:
        """Take note of the model, and keep its training step out of XLA while that is not made yet."""
        super().set_model(model)
        if is_exchanging(getattr(model, "optimizer", None)):
            xla.turn_off(model)

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcast again in an elastic job: processes that have joined it call `fit` for the first time."""
        if membership.enabled():
            self.broadcast_done = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcast after the first batch."""
        if self.broadcast_done:
            return
        self.broadcast_done = True
        with tf.device(self.device or None):
            variables = tf.compat.v1.global_variables() if values.in_session() else self._variables()
            operation = broadcast_variables(self._without_local(variables), self.root_rank)
        if operation is not None:
            values.run(operation)

    def _variables(self) -> list[Any]:
        # Weights, and neither metrics nor the states of random numbers, which are this rank's own.
        return [*self.model.weights, *variables_of(self.model.optimizer)]

    def _without_local(self, variables: Iterable[Any]) -> list[Any]:
        if not self.local_variables:
            return list(variables)
        local = {key_of(variable) for variable in self.local_variables}
        owners = {_text(variable): key_of(variable) for variable in self.model.weights}
        return [one for one in variables if key_of(one) not in local and _owner(one, owners) not in local]


def _text(variable: Any) -> str:
    # The path of a Keras 3 variable, or the name of another one without the number of its output.
    return str(getattr(variable, "path", inner_variable(variable).name)).partition(":")[0]


def _owner(slot: Any, owners: dict[str, int]) -> int | None:
    """Return the weight that an optimizer keeps this state for, by the weight's name in the state's own."""
    name = f"_{_text(slot)}_".replace("/", "_")
    found = [text for text in owners if f"_{text}_".replace("/", "_") in name]
    return owners[max(found, key=len)] if found else None


class LearningRateSchedule(schedules.LearningRateSchedule):
    """Multiplies the initial learning rate by a factor that depends on the epoch."""

    _number = staticmethod(values.number)
    _correction_of = MomentumCorrection


class LearningRateWarmup(schedules.LearningRateWarmup, LearningRateSchedule):
    """Takes the learning rate from initial_lr / size to initial_lr, batch by batch."""


__all__ = [
    "BestModel",
    "BroadcastGlobalVariables",
    "LearningRateSchedule",
    "LearningRateWarmup",
    "MetricAverage",
]
