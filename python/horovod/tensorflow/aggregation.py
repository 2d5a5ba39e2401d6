# SPDX-License-Identifier: Apache-2.0
"""
Several backward passes for one step: gradients are added up on this rank, and every n-th pass reduces the sums.

Works eagerly, in tf.function and in graphs of tf.compat.v1. The decision is made by a counter in a variable, which
has the same value on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf

from horovod.common.arguments import show, whole_number
from horovod.tensorflow.control_flow import choose, count_of, over, own_variable


def checked_passes(backward_passes_per_step: Any) -> int:
    """Return the number of passes; ValueError for less than 1."""
    passes = whole_number("backward_passes_per_step", backward_passes_per_step, "a whole number from 1 on")
    if passes < 1:
        raise ValueError(f"{show('backward_passes_per_step', passes)} is too small: give a whole number from 1 on")
    return passes


class LocalGradientAggregationHelper:
    """
    Adds gradients up in variables of its own and reduces the sums at every n-th call.

    The variables need no initializer in a v1 graph, and checkpoints do not hold them: a restart counts from 0 again.
    `counter` is the number of passes that have been added since the last reduction.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> helper = hvd.LocalGradientAggregationHelper(2, lambda grads, variables: grads)
    >>> weights = tf.Variable(0.0)
    >>> for _ in range(2):
    ...     (gradient,) = helper.compute_gradients([tf.constant(1.5)], [weights])
    ...     _ = helper.apply_gradients(lambda: weights.assign_sub(gradient))
    >>> weights.numpy().item()
    -3.0
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[list[Any], list[Any]], list[Any]],
        sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False,
    ) -> None:
        self.backward_passes_per_step = checked_passes(backward_passes_per_step)
        self.counter: Any = None
        self._reduce = allreduce_func
        self._sparse_as_dense = sparse_as_dense
        self._average = average_aggregated_gradients
        self._sums: list[Any] = []
        self._has_gradient: list[bool] = []

    def compute_gradients(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """
        Add this pass's gradients to the sums.

        Returns the reduced sums on the last pass, and the sums so far, which must not be applied, on all others.
        """
        grads, variables = [self._dense(grad) for grad in grads], list(variables)
        self._make_variables(grads, variables)
        present = [grad for grad in grads if grad is not None]
        before = count_of(self.counter)
        totals = _listed(
            choose(
                tf.equal(before, 0),
                lambda: [tf.identity(grad) for grad in present],
                lambda: [total.read_value() + grad for total, grad in zip(self._sums, present)],
            )
        )

        def last() -> list[Any]:
            reduced = [grad for grad in self._reduce(self._restored(totals), variables) if grad is not None]
            if self._average:
                reduced = [grad / tf.cast(self.backward_passes_per_step, grad.dtype) for grad in reduced]
            with tf.control_dependencies([over(self.counter.assign(0))]):
                return [tf.identity(grad) for grad in reduced]

        def not_last() -> list[Any]:
            kept = [one.assign(total) for one, total in zip(self._sums, totals)]
            with tf.control_dependencies([over([*kept, self.counter.assign(before + 1)])]):
                return [tf.identity(total) for total in totals]

        return self._restored(_listed(choose(before + 1 >= self.backward_passes_per_step, last, not_last)))

    def apply_gradients(
        self,
        apply_grads_closure: Callable[[], Any],
        optimizer: Any = None,
        grads: Sequence[Any] = (),
        global_step: Any = None,
    ) -> Any:
        """
        Call what applies gradients, if this pass reduced; else only count the step, as applying would have done.

        `grads` are what `compute_gradients` returned: a v1 graph knows by them what has to run first. The step is
        `global_step`, or `iterations` of the optimizer. Eagerly it returns what the closure does.
        """
        step = global_step if global_step is not None else getattr(optimizer, "iterations", None)

        def count() -> Any:
            return None if step is None else step.assign_add(1)

        if tf.executing_eagerly():
            return apply_grads_closure() if int(self.counter) == 0 else over(count())
        with tf.control_dependencies([grad for grad in grads if grad is not None]):
            reduced = tf.equal(self.counter.read_value(), 0)
            return tf.group(choose(reduced, lambda: over(apply_grads_closure()), lambda: over(count())))

    def _dense(self, grad: Any) -> Any:
        if not isinstance(grad, tf.IndexedSlices):
            return grad
        if not self._sparse_as_dense:
            raise ValueError(
                "backward_passes_per_step above 1 cannot add up sparse gradients: give sparse_as_dense=True"
            )
        return tf.convert_to_tensor(grad)

    def _make_variables(self, grads: list[Any], variables: list[Any]) -> None:
        has_gradient = [grad is not None for grad in grads]
        if self.counter is not None:
            if has_gradient != self._has_gradient:
                raise ValueError("the gradients are of other variables than those of the first pass")
            return
        self._has_gradient = has_gradient
        self.counter = own_variable([], tf.int32, "aggregation_counter")
        self._sums = [
            own_variable(variable.shape, grad.dtype, f"aggregation_sum_{i}")
            for i, (grad, variable) in enumerate(zip(grads, variables))
            if grad is not None
        ]

    def _restored(self, values: Sequence[Any]) -> list[Any]:
        """Return the values in the places of the gradients that are there, and None in all others."""
        rest = iter(values)
        return [next(rest) if there else None for there in self._has_gradient]


def _listed(values: Any) -> list[Any]:
    # A condition with one result in a list returns the result alone.
    return list(values) if isinstance(values, (list, tuple)) else [values]
