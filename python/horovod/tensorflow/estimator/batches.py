# SPDX-License-Identifier: Apache-2.0
"""The tensors of a step, from an input function."""

from __future__ import annotations

import inspect
from typing import Any, Callable

import tensorflow as tf

from horovod.tensorflow.strategy import exchange


def call(function: Callable, what: str, given: dict[str, Any], *positional: Any) -> Any:
    """Call a user's function with those of the `given` arguments that its signature names."""
    parameters = inspect.signature(function).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    taken = {name: value for name, value in given.items() if name in parameters or takes_all}
    missing = [
        name
        for place, (name, one) in enumerate(parameters.items())
        if place >= len(positional)
        and one.default is one.empty
        and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        and name not in taken
    ]
    if missing:
        raise ValueError(
            f"{what} takes {', '.join(missing)}, which the estimator does not give: it can take {', '.join(given)}"
        )
    return function(*positional, **taken)


def tensors_of(made: Any, together: bool) -> tuple[Any, Any]:
    """
    Return the features and labels of the next step, from a dataset or from tensors.

    With `together`, the input ends on all ranks as soon as it ends on one.
    """
    if isinstance(made, (tf.data.Dataset, tf.compat.v1.data.Dataset)):
        made = _next_of(made, together)
    if isinstance(made, (tuple, list)) and len(made) == 2:
        return made[0], made[1]
    return made, None


def _next_of(dataset: Any, together: bool) -> Any:
    iterator = _iterator(dataset)
    if not together:
        return iterator.get_next()
    found = iterator.get_next_as_optional()
    ended = _iterator(dataset.take(0))
    return tf.cond(exchange.all_ranks(found.has_value()), found.get_value, ended.get_next)


def _iterator(dataset: Any) -> Any:
    iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return iterator
