# SPDX-License-Identifier: Apache-2.0
"""Conditions on values of variables, which eager code and graphs write differently."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf


def over(operations: Any) -> tf.Tensor:
    """Return a tensor that is there when the operations are over; in a graph nothing else makes sure that they run."""
    wanted = [one for one in tf.nest.flatten(operations) if isinstance(one, tf.Operation) or hasattr(one, "op")]
    with tf.control_dependencies([] if tf.executing_eagerly() else wanted):
        return tf.constant(True)


def choose(condition: tf.Tensor, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """Return what one of the functions does; both must return the same number and types of tensors."""
    if tf.executing_eagerly():
        return yes() if bool(condition) else no()
    return tf.cond(condition, yes, no)
