# SPDX-License-Identifier: Apache-2.0
"""Callbacks that need nothing of a backend of Keras: averages of metrics, learning rates, and the best model."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from horovod._keras.families import chain_of
from horovod.common.arguments import show
from horovod.common.basics import HorovodBasics
from horovod.common.objects import allgather_object

_basics = HorovodBasics()


class MetricAverage:
    """Replaces the metrics of an epoch by their means over the ranks."""

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Average in place: callbacks that come later in the list see it."""
        if not logs or _basics.size() == 1:
            return
        own = {name: float(logs[name]) for name in sorted(logs) if np.isscalar(logs[name]) or np.ndim(logs[name]) == 0}
        gathered = allgather_object(own, name="MetricAverageCallback")
        for rank, other in enumerate(gathered):
            if list(other) != list(own):
                raise ValueError(
                    "MetricAverageCallback needs the same metrics on all ranks: "
                    f"rank {_basics.rank()} has {list(own)}, rank {rank} has {list(other)}"
                )
        for name in own:
            logs[name] = sum(other[name] for other in gathered) / len(gathered)


class LearningRateSchedule:
    """Multiplies the initial learning rate by a factor that depends on the epoch."""

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr=None: give the learning rate that the multiplier is applied to")
        self.initial_lr = float(initial_lr)
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        if callable(multiplier):
            self.multiplier = multiplier
        elif isinstance(multiplier, (int, float)):
            self.multiplier = lambda epoch: multiplier ** (epoch - start_epoch)
        else:
            raise TypeError(f"{show('multiplier', multiplier)} is no number: give one, or a function of the epoch")

    @staticmethod
    def _number(value: Any) -> float:
        """Return the number that a variable of this Keras holds."""
        raise NotImplementedError

    @staticmethod
    def _correction_of(model: Any) -> Any:
        """Return what scales the momentum for a batch (`correct`, `restore`); None: nothing does."""
        raise NotImplementedError

    def set_model(self, model: Any) -> None:
        """Take note of the model, and make its momentum adjustable while the training step is not made yet."""
        super().set_model(model)
        _check_settable(model.optimizer)
        self._momentum = self._correction_of(model) if self.momentum_correction else None

    def on_train_begin(self, logs: Any = None) -> None:
        """Find out how many steps an epoch has."""
        if self.steps_per_epoch is None and not self.staircase:
            self.steps_per_epoch = _steps_of(self.params or {})
            if not self.steps_per_epoch:
                raise ValueError(f"{type(self).__name__} cannot see how many steps an epoch has: give steps_per_epoch")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Take note of the epoch."""
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Set the learning rate for this batch."""
        if self.current_epoch < self.start_epoch or (
            self.end_epoch is not None and self.current_epoch >= self.end_epoch
        ):
            return
        if not self.staircase:
            self._adjust(self.current_epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._adjust(self.current_epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Take the momentum back to what it was."""
        if self._momentum is not None:
            self._momentum.restore()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Put the learning rate among the metrics."""
        if logs is not None:
            logs["lr"] = self._number(self.model.optimizer.learning_rate)

    def _adjust(self, epoch: float) -> None:
        old, new = self._number(self.model.optimizer.learning_rate), self.initial_lr * self.multiplier(epoch)
        self.model.optimizer.learning_rate = new
        if self._momentum is not None and old > 0.0:
            self._momentum.correct(new / old)


def _steps_of(params: dict[str, Any]) -> int | None:
    if params.get("steps"):
        return params["steps"]
    samples, batch = params.get("samples"), params.get("batch_size")  # sessions of Keras 2 say these
    return -(-samples // batch) if samples and batch else None


class LearningRateWarmup(LearningRateSchedule):
    """Takes the learning rate from initial_lr / size to initial_lr, batch by batch."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # As if the batch were over, so that the last one of the warm-up has the full rate.
            epoch = min(epoch + 1.0 / self.steps_per_epoch, warmup_epochs)
            size = _basics.size()
            return (epoch * (size - 1) / warmup_epochs + 1.0) / size

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Go on with the full rate after the warm-up, and say so on rank 0."""
        super().on_epoch_end(epoch, logs)
        if not epoch < self.end_epoch <= epoch + 1:
            return
        # Where Keras runs several steps at once, the last batch that it tells of is not the last one.
        self.model.optimizer.learning_rate = self.initial_lr
        if self.verbose > 0 and _basics.rank() == 0:
            print(f"\nEpoch {epoch + 1}: warm-up is over, the learning rate is {self.initial_lr:g}.", flush=True)


class BestModel:
    """Saves the best model so far into `filepath`, which is set after the callback is made."""

    def __init__(self, **options: Any) -> None:
        # Keras 3 wants a path with the right ending at once.
        ending = ".weights.h5" if options.get("save_weights_only") else ".keras"
        super().__init__(filepath=f"unset{ending}", save_best_only=True, **options)
        self.filepath = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Raise ValueError before training starts if no file path was set."""
        if self.filepath is None:
            raise ValueError(
                "BestModelCheckpoint has no filepath: set it before training, as in callback.filepath = ..."
            )
        super().on_train_begin(logs)


def _check_settable(optimizer: Any) -> None:
    innermost = list(chain_of(optimizer))[-1]
    rate = getattr(innermost, "_learning_rate", None)
    if rate is None:
        rate = innermost.learning_rate
    if callable(rate) and not hasattr(rate, "assign"):
        raise TypeError(
            f"the optimizer has {show('learning_rate', rate)}: a callback can set the learning rate of an optimizer "
            "that was made with a number only"
        )
