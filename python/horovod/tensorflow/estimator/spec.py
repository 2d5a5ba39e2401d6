# SPDX-License-Identifier: Apache-2.0
"""The return value of a model function."""

from __future__ import annotations

import dataclasses
from typing import Any

from horovod.common.arguments import show
from horovod.tensorflow.estimator.config import ModeKeys


@dataclasses.dataclass
class EstimatorSpec:
    """
    The graph that a model function built for a mode.

    `host_call` is a pair of a function and a list of tensors, which are its arguments. The function builds operations
    on the CPU, and a step runs its result, besides `train_op` if that is given, too. The device computes gradients
    while the host reduces and applies those that exist already.

    >>> EstimatorSpec(ModeKeys.TRAIN, loss=0.5, host_call=(print, [])).train_op is None
    True
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: dict[str, Any] | None = None
    export_outputs: Any = None
    training_chief_hooks: Any = None
    training_hooks: Any = None
    scaffold: Any = None
    evaluation_hooks: Any = None
    prediction_hooks: Any = None
    host_call: Any = None

    def __post_init__(self) -> None:
        if self.mode not in (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT):
            raise ValueError(f"{show('mode', self.mode)} is none of ModeKeys.TRAIN, EVAL and PREDICT")
        if self.mode != ModeKeys.PREDICT and self.loss is None:
            raise ValueError(f"mode {self.mode!r} needs loss=")
        if self.mode == ModeKeys.TRAIN and self.train_op is None and self.host_call is None:
            raise ValueError("mode 'train' needs train_op= or host_call=")
        if self.host_call is not None:
            good = isinstance(self.host_call, (tuple, list)) and len(self.host_call) == 2
            if not good or not callable(self.host_call[0]) or not isinstance(self.host_call[1], (tuple, list)):
                raise ValueError(f"{show('host_call', self.host_call)} is no pair of a function and a list of tensors")
