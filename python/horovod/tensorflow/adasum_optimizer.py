# SPDX-License-Identifier: Apache-2.0
"""
Optimizers of tf.compat.v1 under Adasum: each rank takes its own steps, and what they have changed is combined.

Adasum is a rule for steps, not for gradients: an optimizer that changes a gradient's length, as Adam does, must come
before it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet
from horovod.tensorflow.control_flow import choose, count_of, over, own_variable
from horovod.tensorflow.local_variables import LocalVariables, split
from horovod.tensorflow.reduction import Reduce, takes_part


class _DistributedAdasumOptimizer(tf.compat.v1.train.Optimizer):
    """
    Steps by the optimizer inside; after every n-th the ranks' changes since the last time are combined.

    The weights from which ranks set out are kept in variables of its own.
    """

    def __init__(
        self,
        optimizer: tf.compat.v1.train.Optimizer,
        name: str | None,
        use_locking: bool,
        reduce: Reduce,
        passes: int,
        process_set: ProcessSet,
    ) -> None:
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking)
        self._optimizer = optimizer
        self._reduce = reduce
        self._passes = passes
        self._process_set = process_set
        self._local = LocalVariables()
        self._counter: Any = None
        self._starts: list[Any] = []

    def register_local_var(self, var: Any) -> None:
        """Leave a variable to this rank alone."""
        self._local.add(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return this rank's gradients."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Take a step, and combine the ranks' changes if it is the last one."""
        pairs = list(grads_and_vars)
        changed = [variable for gradient, variable in pairs if gradient is not None]
        shared = split(self._local.which(changed), changed)[1]
        if not takes_part(self._process_set) or not shared:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        self._make_variables(shared)

        def set_out() -> Any:
            return over([start.assign(one.read_value()) for start, one in zip(self._starts, shared)])

        def combine() -> Any:
            changes = [one.read_value() - start.read_value() for start, one in zip(self._starts, shared)]
            combined = self._reduce(changes, shared)
            ends = [one.assign(start + change) for start, one, change in zip(self._starts, shared, combined)]
            return over([*ends, self._counter.assign(0)])

        before = count_of(self._counter)
        first = choose(tf.equal(before, 0), set_out, lambda: over([]))
        with tf.control_dependencies([first]):
            applied = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        with tf.control_dependencies([] if applied is None else [applied]):
            return tf.group(choose(before + 1 >= self._passes, combine, lambda: over(self._counter.assign(before + 1))))

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Return a slot of the optimizer inside."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Return the names of the optimizer's slots."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """Return the variables of the optimizer inside."""
        return self._optimizer.variables(*args, **kwargs)

    def _make_variables(self, shared: list[Any]) -> None:
        if self._counter is not None:
            return
        self._counter = own_variable([], tf.int32, "adasum_counter")
        self._starts = [
            own_variable(one.shape, one.dtype.base_dtype, f"adasum_start_{i}") for i, one in enumerate(shared)
        ]
