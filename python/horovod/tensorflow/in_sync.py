# SPDX-License-Identifier: Apache-2.0
"""
Whether all ranks hold the same variables: `check_in_sync`, and the checks that tapes and wrapped optimizers make.

A tape or an optimizer counts its steps with the first variable whose gradient it reduces, so a tf.function that is
traced again counts on. In a graph the count is a variable, and the others are read in the steps that are due.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from horovod.common import in_sync
from horovod.common.arguments import show
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.control_flow import own_variable
from horovod.tensorflow.local_variables import inner_variable, path_of

_STEPS = "_hvd_steps_in_sync"
_NO_NUMBERS = (tf.string, tf.resource, tf.variant)


def check_in_sync(model_or_variables: Any, process_set: ProcessSet = global_process_set) -> None:
    """
    Compare a model's variables, or a list of variables, among the ranks by checksums.

    If they differ, every rank of the set raises HorovodSyncError, which names the first variable that differs and the
    ranks. Every rank of the set calls it with the same variables; not inside a tf.function.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.check_in_sync([tf.Variable([1.0, 2.0])])
    """
    if not tf.executing_eagerly():
        raise RuntimeError("hvd.check_in_sync() reads values: call it outside of tf.function and of graphs")
    variables = getattr(model_or_variables, "variables", model_or_variables)
    if hasattr(variables, "assign") or not isinstance(variables, Iterable):
        raise TypeError(
            f"{show('model_or_variables', model_or_variables)} cannot be checked: give a model or a list of variables"
        )
    in_sync.check_in_sync(_arrays(list(variables)), "check_in_sync", process_set)


def _arrays(variables: Sequence[Any]) -> list[in_sync.Named]:
    """Return names and values of the variables that hold numbers."""
    named = [(path_of(variable), inner_variable(variable)) for variable in variables]
    return [
        (name, lambda variable=variable: np.asarray(variable.read_value()))
        for name, variable in named
        if variable.dtype.base_dtype not in _NO_NUMBERS
    ]


class _Steps(in_sync.Watch):
    """The steps of one list of variables, eagerly and in graphs."""

    def __init__(self, every: int | None) -> None:
        self.in_graphs = own_variable([], tf.int64, "steps_in_sync")
        super().__init__(every)

    def restart(self) -> None:
        super().restart()
        with tf.init_scope():
            self.in_graphs.assign(0)


def watch(grads: Sequence[Any], variables: Sequence[Any], name: str, process_set: ProcessSet) -> Any:
    """
    Count a step, and check the variables whose gradients are about to be reduced if the step is due.

    Only among all ranks: members of other sets may hold different values of what they share with others. Graphs of
    tf.compat.v1, where variables have values in a session only, are left out. Returns a context for the reductions:
    in a graph they wait for the check.
    """
    every = in_sync.interval()
    if every == 0 or process_set.process_set_id != 0 or not tf.compat.v1.executing_eagerly_outside_functions():
        return contextlib.nullcontext()
    reduced = [variable for grad, variable in zip(grads, variables) if grad is not None]
    reduced = [variable for variable in reduced if isinstance(inner_variable(variable), tf.Variable)]
    if not reduced:
        return contextlib.nullcontext()
    first = inner_variable(reduced[0])
    steps = getattr(first, _STEPS, None)
    if steps is None:
        steps = _Steps(every)
        setattr(first, _STEPS, steps)
    name = f"{name}.in_sync"
    if not tf.executing_eagerly():
        return tf.control_dependencies([_look_in_graph(steps, reduced, name, every)])
    steps.step += 1
    if steps.is_due(steps.step):
        steps.look(steps.step, _arrays(reduced), name)
    return contextlib.nullcontext()


def _look_in_graph(steps: _Steps, variables: Sequence[Any], name: str, every: int | None) -> tf.Operation:
    checked = [variable for variable in variables if inner_variable(variable).dtype.base_dtype not in _NO_NUMBERS]
    names = [path_of(variable) for variable in checked]

    def look(step: np.ndarray, *values: np.ndarray) -> None:
        named = [(path, lambda value=value: value) for path, value in zip(names, values)]
        with tf.init_scope():
            steps.look(int(step), named, name)

    def read_and_look() -> tf.Operation:
        # The graph reads them, so TensorFlow orders this before whatever changes them later: an optimizer's decay of
        # weights waits for no gradient.
        values = [inner_variable(variable).read_value() for variable in checked]
        return tf.group(tf.numpy_function(look, [step, *values], []))

    step = steps.in_graphs.assign_add(1, read_value=True)
    due = step <= steps.last_look
    if every:
        due = due | (step % every == 0)
    return tf.cond(due, read_and_look, tf.no_op)
