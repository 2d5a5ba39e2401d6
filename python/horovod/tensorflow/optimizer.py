# SPDX-License-Identifier: Apache-2.0
"""`DistributedOptimizer`: optimizers of tf.compat.v1 here, those of Keras in horovod.tensorflow.keras."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common import reductions
from horovod.common.arguments import show
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.adasum_optimizer import _DistributedAdasumOptimizer
from horovod.tensorflow.aggregation import LocalGradientAggregationHelper, checked_passes
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.local_variables import LocalVariables, merge, split
from horovod.tensorflow.mpi_ops import Adasum, Average
from horovod.tensorflow.reduction import Reduce, _make_allreduce_grads_fn, checked_groups, checked_predivide
from horovod.tensorflow.tape import scaled_local


class _DistributedOptimizer(tf.compat.v1.train.Optimizer):
    """
    An optimizer of tf.compat.v1 whose `compute_gradients` gives the gradients of all ranks.

    Everything else is left to the optimizer inside. Gradients are reduced there and nowhere else, so `minimize`, or
    `compute_gradients` and `apply_gradients` one after the other, reduce once.
    """

    def __init__(
        self,
        optimizer: tf.compat.v1.train.Optimizer,
        name: str | None,
        use_locking: bool,
        reduce: Reduce,
        process_set: ProcessSet,
        scale_local: bool,
    ) -> None:
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking)
        self._optimizer = optimizer
        self._reduce = reduce
        self._process_set = process_set
        self._scale_local = scale_local
        self._local = LocalVariables()
        self._agg_helper: LocalGradientAggregationHelper | None = None

    def aggregate(self, passes: int, sparse_as_dense: bool, average: bool) -> None:
        """Reduce at every n-th call only."""
        self._agg_helper = LocalGradientAggregationHelper(passes, self._allreduce, sparse_as_dense, average)

    def register_local_var(self, var: Any) -> None:
        """Do not reduce the gradient of a variable."""
        self._local.add(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return (gradient, variable) pairs as the optimizer inside does, with the gradients of all ranks."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        grads, variables = [grad for grad, _ in pairs], [variable for _, variable in pairs]
        compute = self._allreduce if self._agg_helper is None else self._agg_helper.compute_gradients
        return list(zip(compute(grads, variables), variables))

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Apply gradients by the optimizer inside."""
        pairs = list(grads_and_vars)
        if self._agg_helper is None:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        if self._agg_helper.counter is None:
            raise ValueError("with backward_passes_per_step above 1, apply what this compute_gradients gave")
        return self._agg_helper.apply_gradients(
            lambda: self._optimizer.apply_gradients(pairs, global_step=global_step, name=name),
            self._optimizer,
            grads=[grad for grad, _ in pairs],
            global_step=global_step,
        )

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Return a slot of the optimizer inside."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Return the names of the optimizer's slots."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """Return the variables of the optimizer inside."""
        return self._optimizer.variables(*args, **kwargs)

    def _allreduce(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        flags = self._local.which(variables)
        local, others = split(flags, grads)
        others = self._reduce(others, split(flags, variables)[1])
        if self._scale_local:
            local = scaled_local(local, self._process_set)
        return merge(flags, local, others)


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """
    Return an optimizer that applies the gradients of all ranks; by default their average.

    Takes optimizers of tf.compat.v1 and of Keras 3 and 2. With `backward_passes_per_step` n, gradients are added up
    here and reduced at every n-th call; with `average_aggregated_gradients` the sum is divided by n.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     weights = tf.compat.v1.get_variable("weights", initializer=3.0)
    ...     optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.5))
    ...     train = optimizer.minimize(weights * weights)
    ...     _ = session.run(tf.compat.v1.global_variables_initializer())
    ...     _ = session.run(train)
    ...     print(session.run(weights))
    0.0
    """
    groups = checked_groups(num_groups, groups)
    passes = checked_passes(backward_passes_per_step)
    op = reductions.choose(op, None)
    checked_predivide(op, gradient_predivide_factor)
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("average_aggregated_gradients=True has no meaning with op=hvd.Adasum")
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return _keras_optimizer(
            optimizer,
            name=name,
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            backward_passes_per_step=passes,
            average_aggregated_gradients=average_aggregated_gradients,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
    if isinstance(optimizer, (_DistributedOptimizer, _DistributedAdasumOptimizer)):
        raise ValueError("the optimizer is distributed already: its gradients would be reduced twice")
    reduce = _make_allreduce_grads_fn(
        "optimizer",
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        groups,
        process_set,
    )
    if op == Adasum:
        return _DistributedAdasumOptimizer(optimizer, name, use_locking, reduce, passes, process_set)
    wrapped = _DistributedOptimizer(optimizer, name, use_locking, reduce, process_set, scale_local_gradients)
    if passes > 1:
        wrapped.aggregate(passes, sparse_as_dense, average_aggregated_gradients)
    return wrapped


def _keras_optimizer(optimizer: Any, **options: Any) -> Any:
    if not hasattr(optimizer, "apply_gradients"):
        raise TypeError(f"{show('optimizer', optimizer)} is no optimizer: give one of tf.compat.v1.train or of Keras")
    from horovod.tensorflow import keras  # here, because it imports Keras, which takes seconds

    return keras.DistributedOptimizer(optimizer, **options)
