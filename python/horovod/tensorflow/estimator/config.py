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


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """
    How to run. The fields are those arguments of tf.estimator.RunConfig that have a meaning here.

    `train_distribute` is a strategy of horovod.tensorflow.strategy. Without a strategy this process trains alone, or
    with hvd.DistributedOptimizer and hvd.BroadcastGlobalVariablesHook.

    >>> RunConfig(save_checkpoints_steps=100).save_checkpoints_secs is None
    True
    """

    model_dir: str | None = None
    tf_random_seed: int | None = None
    save_summary_steps: int | None = 100
    save_checkpoints_steps: int | None = None
    save_checkpoints_secs: float | None = None
    session_config: Any = None
    keep_checkpoint_max: int = 5
    keep_checkpoint_every_n_hours: float = 10000
    log_step_count_steps: int | None = 100
    train_distribute: Any = None
    eval_distribute: Any = None

    def __post_init__(self) -> None:
        if self.save_checkpoints_steps is not None and self.save_checkpoints_secs is not None:
            raise ValueError("save_checkpoints_steps and save_checkpoints_secs exclude each other: give one of them")
        if self.save_checkpoints_steps is None and self.save_checkpoints_secs is None:
            object.__setattr__(self, "save_checkpoints_secs", 600)


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
