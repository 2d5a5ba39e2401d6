# SPDX-License-Identifier: Apache-2.0
"""
Steps that follow a change of the job: functions of the program, new learning rates, and a pause of the collector.

Thread safety: all belongs to the thread that trains.
"""

from __future__ import annotations

import gc
import inspect
import math
from typing import Any, Callable

from horovod.common.arguments import show

_FACTORS = {"linear": lambda ratio: ratio, "sqrt": math.sqrt}


class LearningRateRescaler:
    """Multiplies the learning rate of a state's optimizer when the number of ranks has changed."""

    def __init__(self, rule: str) -> None:
        if rule not in _FACTORS:
            raise ValueError(f"{show('rule', rule)} is no rule: give 'linear' or 'sqrt'")
        self._factor = _FACTORS[rule]

    def __call__(self, state: Any, before: int, now: int) -> None:
        """Rescale for a state whose values are those of `before` ranks."""
        optimizer = getattr(state, "optimizer", None)
        if optimizer is None:
            raise ValueError("rescale_lr: the state has no optimizer; give it optimizer=")
        factor = self._factor(now / before)
        groups = getattr(optimizer, "param_groups", None)
        if groups is not None:
            for group in groups:
                group["lr"] *= factor
            return
        rate = getattr(optimizer, "learning_rate", None)
        if not hasattr(rate, "assign"):
            raise ValueError(
                f"rescale_lr: the learning rate of {type(optimizer).__name__} is {rate!r} and cannot be set: give the "
                "optimizer a number as its learning rate"
            )
        rate.assign(float(rate.numpy()) * factor)


def rescale_lr(rule: str) -> LearningRateRescaler:
    """
    Return a reset callback that rescales the learning rate of `state.optimizer` when the number of ranks has changed.

    "linear" multiplies it by the ratio of the numbers of ranks, "sqrt" by the square root of the ratio. The ratio is
    that of the new number to the number when the values were committed, so two losses in a row count once each.

    >>> import horovod.numpy as hvd
    >>> callback = hvd.elastic.rescale_lr("linear")
    """
    return LearningRateRescaler(rule)


def call(callback: Callable[..., Any], state: Any, before: int, now: int) -> None:
    """Call a reset callback; it is given the numbers of ranks if it takes two arguments."""
    if isinstance(callback, LearningRateRescaler):
        callback(state, before, now)
    elif _takes_sizes(callback):
        callback(before, now)
    else:
        callback()


def _takes_sizes(callback: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(callback).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.kind in positional and one.default is inspect.Parameter.empty]
    return len(needed) == 2


class Collector:
    """
    Keeps Python's garbage collector from running while a function is entered again.

    The frames of a failed call leave many cycles, and a collection in the middle of the next call's tracing can take
    seconds.
    """

    def __init__(self) -> None:
        self._paused = False

    def pause(self) -> None:
        """Collect what the failed call left, and no more until `resume`."""
        gc.collect(1)
        if gc.isenabled():
            gc.disable()
            self._paused = True

    def resume(self) -> None:
        """Collect as before."""
        if self._paused:
            self._paused = False
            gc.enable()


collector = Collector()
