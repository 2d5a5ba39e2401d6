# SPDX-License-Identifier: Apache-2.0
"""
An estimator for programs written for tf.estimator, which TensorFlow 2.16 removed.

New programs use `fit` of Keras or a custom loop under a strategy's scope. The estimator trains, evaluates, writes
checkpoints and resumes from them, in sessions of tf.compat.v1. It has no prediction, export or warm start. Hooks are
those of tf.compat.v1.train.
"""

from typing import Any

import tensorflow as tf

from horovod.tensorflow.estimator import inputs
from horovod.tensorflow.estimator.config import EvalSpec, ModeKeys, RunConfig, TrainSpec
from horovod.tensorflow.estimator.estimator import Estimator, train_and_evaluate
from horovod.tensorflow.estimator.spec import EstimatorSpec

# What tf.estimator took over from tf.train.
_OF_TRAIN = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LoggingTensorHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "SecondOrStepTimer",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
]

__all__ = [
    "Estimator",
    "EstimatorSpec",
    "RunConfig",
    "ModeKeys",
    "TrainSpec",
    "EvalSpec",
    "train_and_evaluate",
    "inputs",
]


def __getattr__(name: str) -> Any:
    if name in _OF_TRAIN:
        return getattr(tf.compat.v1.train, name)
    raise AttributeError(
        f"horovod.tensorflow.estimator has no {name}: it has {', '.join(__all__)}, and hooks such as {_OF_TRAIN[5]}"
    )
