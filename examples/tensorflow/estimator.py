# SPDX-License-Identifier: Apache-2.0
"""
Handwritten digits with an estimator: gradients on the device, reduction and weight updates on the host.

    python examples/tensorflow/estimator.py                                  # one process
    horovodrun -np 2 examples/tensorflow/estimator.py --folder checkpoints   # two; run it again and it goes on

With TF_CONFIG set, its tasks are the ranks.
"""

from __future__ import annotations

import argparse
import os

import numpy as np
import tensorflow as tf
from horovod.tensorflow.estimator import Estimator, EstimatorSpec, ModeKeys, RunConfig
from horovod.tensorflow.strategy import HorovodStrategy, MultiWorkerStrategy
from sklearn.datasets import load_digits

v1 = tf.compat.v1

TRAINING_ROWS = 1440
BATCH = 24  # of one rank


def input_fn(mode: str, input_context: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return this rank's rows."""
    images, labels = load_digits(return_X_y=True)
    rows = slice(0, TRAINING_ROWS) if mode == ModeKeys.TRAIN else slice(TRAINING_ROWS, None)
    dataset = tf.data.Dataset.from_tensor_slices(((images[rows] / 16.0).astype(np.float32), labels[rows]))
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    if mode == ModeKeys.TRAIN:
        return dataset.shuffle(TRAINING_ROWS, seed=1).repeat().batch(BATCH)
    return dataset.batch(BATCH)


def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> EstimatorSpec:
    """Return the graph of a network with one hidden layer."""
    hidden = v1.get_variable("hidden", [64, 128], initializer=v1.glorot_uniform_initializer())
    bias = v1.get_variable("bias", [128], initializer=v1.zeros_initializer())
    output = v1.get_variable("output", [128, 10], initializer=v1.glorot_uniform_initializer())
    scores = tf.matmul(tf.nn.relu(tf.matmul(features, hidden) + bias), output)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
    # By the batch of one rank: the optimizer divides by the number of ranks.
    loss = tf.reduce_sum(each) / BATCH
    if mode == ModeKeys.EVAL:
        accuracy = v1.metrics.accuracy(labels, tf.argmax(scores, 1))
        return EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})

    optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
    pairs = optimizer.compute_gradients(loss)
    variables = [variable for _, variable in pairs]

    def on_the_host(*gradients: tf.Tensor) -> tf.Operation:
        return optimizer.apply_gradients(zip(gradients, variables))

    return EstimatorSpec(mode, loss=loss, host_call=(on_the_host, [gradient for gradient, _ in pairs]))


def main() -> None:
    """Train, and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--folder", help="where rank 0 keeps checkpoints")
    arguments = parser.parse_args()

    strategy = (MultiWorkerStrategy if "TF_CONFIG" in os.environ else HorovodStrategy)(variables_on_host=True)
    config = RunConfig(train_distribute=strategy, save_checkpoints_steps=50)
    estimator = Estimator(model_fn, model_dir=arguments.folder, config=config)
    estimator.train(input_fn, steps=arguments.steps)
    found = estimator.evaluate(input_fn)
    if strategy.extended.should_checkpoint:
        ranks = strategy.num_replicas_in_sync
        print(f"{ranks} ranks, step {found['global_step']}, test accuracy {found['accuracy']:.3f}")


if __name__ == "__main__":
    main()
