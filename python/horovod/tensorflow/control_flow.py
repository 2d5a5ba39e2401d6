# SPDX-License-Identifier: Apache-2.0
"""Conditions and counters, which eager code and graphs write differently."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable


def over(operations: Any) -> tf.Tensor:
    """Return a tensor that, in a graph, depends on the operations, so that they run."""
    wanted = [one for one in tf.nest.flatten(operations) if isinstance(one, tf.Operation) or hasattr(one, "op")]
    with tf.control_dependencies([] if tf.executing_eagerly() else wanted):
        return tf.constant(True)


def choose(condition: tf.Tensor, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """Return what one of the functions does; both must return the same number and types of tensors."""
    if tf.executing_eagerly():
        return yes() if bool(condition) else no()
    return tf.cond(condition, yes, no)


def own_variable(shape: Any, dtype: tf.DType, name: str) -> tf.Variable:
    """
    Return a variable of this package: neither saved in checkpoints nor broadcast.

    Whoever uses it in a v1 graph assigns it before it is read: programs there may run the initializer of global
    variables only.
    """
    with tf.init_scope():  # outside of a function that is being traced, where variables live on
        if tf.executing_eagerly():
            # By its class: tf.function refuses tf.Variable in all traces but the first.
            return ResourceVariable(tf.zeros(shape, dtype), trainable=False, name=name)
        return tf.compat.v1.Variable(
            tf.zeros(shape, dtype),
            trainable=False,
            use_resource=True,
            collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
            name=name,
        )


def count_of(counter: tf.Variable) -> tf.Tensor:
    """Return the value of a variable from `own_variable`; 0 before it is assigned."""
    if tf.compat.v1.executing_eagerly_outside_functions():
        return counter.read_value()
    return tf.cond(counter.is_initialized(), counter.read_value, lambda: tf.constant(0, counter.dtype))
