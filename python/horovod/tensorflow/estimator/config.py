# SPDX-License-Identifier: Apache-2.0
"""Configuration of an estimator: how to run, and what to train and evaluate on."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable


class ModeKeys:
    """The modes in which model and input functions are called."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


# The value of an argument that a program leaves out: None has a meaning of its own.
_LEFT_OUT: Any = object()


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """
    How to run. The fields are those arguments of tf.estimator.RunConfig that have a meaning here.

    `train_distribute` is a strategy of horovod.tensorflow.strategy. Without a strategy this process trains alone, or
    with hvd.DistributedOptimizer and hvd.BroadcastGlobalVariablesHook.

    The estimator saves a checkpoint every 600 s, or as one of the two arguments says. If you give None and no number,
    it saves none.

    >>> RunConfig().save_checkpoints_secs, RunConfig(save_checkpoints_steps=100).save_checkpoints_secs
    (600, None)
    >>> RunConfig(save_checkpoints_secs=None).saves
    False
    """

    model_dir: str | None = None
    tf_random_seed: int | None = None
    save_summary_steps: int | None = 100
    save_checkpoints_steps: int | None = _LEFT_OUT
    save_checkpoints_secs: float | None = _LEFT_OUT
    session_config: Any = None
    keep_checkpoint_max: int = 5
    keep_checkpoint_every_n_hours: float = 10000
    log_step_count_steps: int | None = 100
    train_distribute: Any = None
    eval_distribute: Any = None

    def __post_init__(self) -> None:
        steps, seconds = self.save_checkpoints_steps, self.save_checkpoints_secs
        if seconds is _LEFT_OUT:
            seconds = 600 if steps is _LEFT_OUT else None
        if steps is _LEFT_OUT:
            steps = None
        if steps is not None and seconds is not None:
            raise ValueError("save_checkpoints_steps and save_checkpoints_secs exclude each other: give one of them")
        object.__setattr__(self, "save_checkpoints_steps", steps)
        object.__setattr__(self, "save_checkpoints_secs", seconds)

    @property
    def saves(self) -> bool:
        """Whether the estimator saves checkpoints."""
        return self.save_checkpoints_steps is not None or self.save_checkpoints_secs is not None

    def replace(self, **fields: Any) -> RunConfig:
        """
        Return a copy with other values; a number for one of the two arguments that save clears the other.

        >>> RunConfig(save_checkpoints_secs=60).replace(save_checkpoints_steps=5).save_checkpoints_secs is None
        True
        """
        names = ("save_checkpoints_steps", "save_checkpoints_secs")
        for name, other in (names, names[::-1]):
            if fields.get(name) is not None:
                fields.setdefault(other, None)
        unknown = sorted(set(fields) - {one.name for one in dataclasses.fields(self)})
        if unknown:
            raise ValueError(f"RunConfig has no {', '.join(unknown)}")
        return dataclasses.replace(self, **fields)


@dataclasses.dataclass(frozen=True)
class TrainSpec:
    """What `train_and_evaluate` trains on, and until which step."""

    input_fn: Callable
    max_steps: int | None = None
    hooks: Any = ()


@dataclasses.dataclass(frozen=True)
class EvalSpec:
    """What `train_and_evaluate` evaluates on; the whole input if `steps` is None."""

    input_fn: Callable
    steps: int | None = 100
    name: str | None = None
    hooks: Any = ()
    exporters: Any = None
    start_delay_secs: float = 120
    throttle_secs: float = 600
