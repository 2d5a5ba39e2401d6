# SPDX-License-Identifier: Apache-2.0
"""Reduces the gradients of a training step among the ranks: as a transformation of optax, or of the function itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from horovod.common import reductions
from horovod.common.arguments import show, whole_number
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax.ops import grouped_allreduce
from horovod.numpy.compression import Compression


class AccumulationState(NamedTuple):
    """The state of a transformation that adds up the gradients of several passes."""

    passes: Any  # since the last step
    sums: Any
    inner: Any


def DistributedGradientTransformation(
    optimizer: Any,
    name: str = "gradients",
    op: int = reductions.Average,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """
    Return a transformation of optax that reduces gradients among the ranks and gives them to `optimizer`.

    With `backward_passes_per_step`, it takes the mean of the gradients of that many calls of `update`, and the ranks
    exchange data in the last of them only. The other calls return zeros. A program with several optimizers gives each
    its own name.

    >>> import jax.numpy as jnp
    >>> import optax
    >>> import horovod.jax as hvd
    >>> hvd.init()
    >>> optimizer = hvd.DistributedGradientTransformation(optax.sgd(0.5))
    >>> updates, state = optimizer.update({"w": jnp.ones(2)}, optimizer.init({"w": jnp.zeros(2)}))
    >>> updates["w"]
    Array([-0.5, -0.5], dtype=float32)
    """
    import optax

    if not isinstance(optimizer, optax.GradientTransformation):
        kind = type(optimizer).__name__
        raise TypeError(f"{show('optimizer', optimizer)} is a {kind}: give an optax.GradientTransformation")
    passes = whole_number("backward_passes_per_step", backward_passes_per_step, "a whole number, 1 or more")
    if passes < 1:
        raise ValueError(f"backward_passes_per_step={passes}: give a whole number, 1 or more")
    inner = optax.with_extra_args_support(optimizer)

    def reduce(gradients: Any) -> Any:
        return grouped_allreduce(gradients, name=name, op=op, compression=compression, process_set=process_set)

    def update(gradients: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        return inner.update(reduce(gradients), state, params, **extra)

    def init_sums(params: Any) -> AccumulationState:
        return AccumulationState(
            jnp.zeros((), jnp.int32), jax.tree_util.tree_map(jnp.zeros_like, params), inner.init(params)
        )

    def update_sums(gradients: Any, state: AccumulationState, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        sums = jax.tree_util.tree_map(jnp.add, state.sums, gradients)

        def step(sums: Any, state: Any) -> tuple[Any, Any, Any]:
            means = jax.tree_util.tree_map(lambda one: one / passes, sums)
            updates, state = update(means, state, params, **extra)
            return updates, jax.tree_util.tree_map(jnp.zeros_like, sums), state

        def wait(sums: Any, state: Any) -> tuple[Any, Any, Any]:
            updates = jax.eval_shape(step, sums, state)[0]
            return jax.tree_util.tree_map(lambda one: jnp.zeros(one.shape, one.dtype), updates), sums, state

        is_last = state.passes == passes - 1
        # Only the branch that is taken communicates, and every rank takes the same one.
        updates, sums, inner_state = jax.lax.cond(is_last, step, wait, sums, state.inner)
        return updates, AccumulationState((state.passes + 1) % passes, sums, inner_state)

    if passes == 1:
        return optax.GradientTransformationExtraArgs(inner.init, update)
    return optax.GradientTransformationExtraArgs(init_sums, update_sums)


def value_and_grad(
    fun: Callable,
    *args: Any,
    name: str = "gradients",
    op: int = reductions.Average,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
    **options: Any,
) -> Callable:
    """
    Return the function of `jax.value_and_grad`, with gradients that are reduced among the ranks and this rank's value.

    Other arguments are those of `jax.value_and_grad`.

    >>> import jax.numpy as jnp
    >>> import horovod.jax as hvd
    >>> hvd.init()
    >>> value, gradient = hvd.value_and_grad(lambda x: (x * x).sum())(jnp.array([1.0, 2.0]))
    >>> gradient
    Array([2., 4.], dtype=float32)
    """
    local = jax.value_and_grad(fun, *args, **options)

    def distributed(*operands: Any, **more: Any) -> tuple[Any, Any]:
        value, gradients = local(*operands, **more)
        return value, grouped_allreduce(gradients, name=name, op=op, compression=compression, process_set=process_set)

    return distributed
