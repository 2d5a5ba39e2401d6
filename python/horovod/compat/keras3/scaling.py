# SPDX-License-Identifier: Apache-2.0
"""
`LossScaleOptimizer.get_scaled_loss` and `get_unscaled_gradients`.

The optimizer of Keras 2 was given gradients that the program had unscaled; that of Keras 3 unscales them itself. So
gradients are scaled again on their way into it, if the program has asked for unscaled ones before.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from types import ModuleType
from typing import Any, Callable

_MARK = "_hvd_gets_unscaled_gradients"


def build(keras: ModuleType) -> None:
    """Build them."""
    scaling = keras.mixed_precision.LossScaleOptimizer
    if hasattr(scaling, "get_scaled_loss"):
        return
    scaling.get_scaled_loss = get_scaled_loss
    scaling.get_unscaled_gradients = get_unscaled_gradients
    scaling.apply = _scaled_again(scaling.apply)


def get_scaled_loss(self: Any, loss: Any) -> Any:
    """Return the loss times the scale; Keras 3 calls it `scale_loss`."""
    if callable(loss):
        return lambda: self.scale_loss(loss())
    return self.scale_loss(loss)


def get_unscaled_gradients(self: Any, grads: Iterable[Any]) -> list[Any]:
    """Return the gradients divided by the scale. The next `apply_gradients` knows that they are."""
    object.__setattr__(self, _MARK, True)
    scale = _scale(self)
    return [_times(grad, 1.0 / scale) for grad in grads]


def _scaled_again(plain: Callable) -> Callable:
    @functools.wraps(plain)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        if self.__dict__.get(_MARK):
            object.__setattr__(self, _MARK, False)
            scale = _scale(self)
            grads = [_times(grad, scale) for grad in grads]
        return plain(self, grads, trainable_variables)

    return apply


def _scale(optimizer: Any) -> Any:
    return optimizer.dynamic_scale.value if optimizer.built else optimizer.initial_scale


def _times(grad: Any, factor: Any) -> Any:
    import tensorflow as tf

    if grad is None:
        return None
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(_times(grad.values, factor), grad.indices, grad.dense_shape)
    return grad * tf.cast(factor, grad.dtype)
