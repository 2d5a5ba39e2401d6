# SPDX-License-Identifier: Apache-2.0
"""
A momentum that can change while training runs.

Optimizers of today keep it as a Python number, which a traced training step has in it for good. Here it is a number
that TensorFlow takes for a variable: as good for `if momentum != 0` and for saving as any other.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._keras.families import Family, chain_of, family_of
from horovod._keras.values import number


class AdjustableMomentum(float):
    """The momentum as the user set it; in tensors, the one of this batch."""

    current: tf.Variable

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        """Return the momentum of this batch."""
        value = self.current.read_value()
        return value if dtype is None or dtype == value.dtype else tf.cast(value, dtype)


class MomentumCorrection:
    """
    Scales the momentum of an optimizer for one batch, and back.

    Accumulated gradients hold the learning rate of the batches that they come from (arXiv 1706.02677, 2.1).
    """

    def __init__(self, model: Any) -> None:
        self._before: float | None = None
        self._optimizer = list(chain_of(model.optimizer))[-1]
        momentum = getattr(self._optimizer, "momentum", None)
        self._has_any = momentum is not None
        if family_of(self._optimizer) is Family.LEGACY:  # its momentum is a variable already
            return
        self._has_any = isinstance(momentum, float) and momentum > 0.0
        if self._has_any and not isinstance(momentum, AdjustableMomentum):
            adjustable = AdjustableMomentum(momentum)
            adjustable.current = tf.Variable(momentum, trainable=False, dtype=tf.float64)
            object.__setattr__(self._optimizer, "momentum", adjustable)
            model.train_function = None  # one that was traced before has the number in it

    def correct(self, factor: float) -> None:
        """Multiply the momentum."""
        if self._has_any:
            self._before = number(self._optimizer.momentum)
            self._set(self._before * factor)

    def restore(self) -> None:
        """Undo `correct`."""
        if self._before is not None:
            self._set(self._before)
            self._before = None

    def _set(self, value: float) -> None:
        if isinstance(self._optimizer.momentum, AdjustableMomentum):
            self._optimizer.momentum.current.assign(value)
        else:
            self._optimizer.momentum = value
