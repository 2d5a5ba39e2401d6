# SPDX-License-Identifier: Apache-2.0
"""The operations of a step, from a model function."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

import tensorflow as tf

from horovod.tensorflow.estimator.batches import call
from horovod.tensorflow.estimator.session import components_of
from horovod.tensorflow.estimator.spec import EstimatorSpec
from horovod.tensorflow.strategy import exchange


@dataclasses.dataclass
class Step:
    """The operations that a session runs once per step."""

    spec: EstimatorSpec
    loss: tf.Tensor  # in training the average over the ranks, in evaluation the loss of this rank
    run: Any


def _spec_of(model_fn: Callable, strategy: Any, batch: tuple, given: dict[str, Any]) -> tuple[EstimatorSpec, Any]:
    features, labels = batch
    made: list[tuple[EstimatorSpec, Any]] = []

    def replica() -> None:
        named = {"labels": labels, **given}
        spec = call(model_fn, "model_fn", named, features)
        if not isinstance(spec, EstimatorSpec):
            raise TypeError(f"model_fn returned {type(spec).__name__}: return an EstimatorSpec")
        train = [spec.train_op]
        if spec.host_call is not None:
            function, tensors = spec.host_call
            with tf.device(exchange.HOST):
                train.append(function(*tensors))
        made.append((spec, train))

    # Optimizers divide the loss by the number of ranks; the model function divides by the batch of one rank.
    with strategy._scale_loss_for_estimator_enabled():
        strategy.run(replica)
    return made[0]


def training(model_fn: Callable, strategy: Any, batch: tuple, given: dict[str, Any]) -> Step:
    """Return the training step, which increments the global step unless the model function does."""
    step = tf.compat.v1.train.get_global_step()
    spec, train = _spec_of(model_fn, strategy, batch, given)
    counts = _is_counted(step)
    parts = [one for part in tf.nest.flatten(train) for one in strategy.experimental_local_results(part)]
    with tf.control_dependencies([one for one in parts if one is not None]):
        run = tf.no_op() if counts else tf.group(*[one.assign_add(1, read_value=False) for one in components_of(step)])
    loss = strategy.reduce(tf.distribute.ReduceOp.MEAN, spec.loss, axis=None)
    return Step(spec, loss, run)


def evaluation(model_fn: Callable, strategy: Any, batch: tuple, given: dict[str, Any]) -> Step:
    """Return the evaluation step, which runs on this rank alone."""
    spec, _ = _spec_of(model_fn, strategy, batch, given)
    updates = [update for _, update in (spec.eval_metric_ops or {}).values()]
    local = [one for update in updates for one in strategy.experimental_local_results(update)]
    return Step(spec, spec.loss, tf.group(*local))


def _is_counted(step: Any) -> bool:
    # Programs of TensorFlow 1 have variables without a handle.
    variables = {one.op.name for one in components_of(step)}
    return any(
        operation.type in ("AssignAddVariableOp", "AssignAdd") and operation.inputs[0].op.name in variables
        for operation in tf.compat.v1.get_default_graph().get_operations()
    )
