# SPDX-License-Identifier: Apache-2.0
"""
Handwritten digits as programs of TensorFlow 1 train: a graph, a MonitoredTrainingSession and hooks.

    python examples/tensorflow/v1_monitored_session.py                             # one process
    horovodrun -np 2 examples/tensorflow/v1_monitored_session.py --folder ckpt     # two; run it again and it goes on
"""

from __future__ import annotations

import argparse
import hashlib

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

v1 = tf.compat.v1
v1.disable_eager_execution()

TRAINING_ROWS = 1440


def scores_of(images: tf.Tensor) -> tf.Tensor:
    """Return the graph of a network with one hidden layer."""
    with v1.variable_scope("network", reuse=v1.AUTO_REUSE):
        hidden = v1.get_variable("hidden", [64, 128], initializer=v1.glorot_uniform_initializer())
        hidden_bias = v1.get_variable("hidden_bias", [128], initializer=v1.zeros_initializer())
        output = v1.get_variable("output", [128, 10], initializer=v1.glorot_uniform_initializer())
    return tf.matmul(tf.nn.relu(tf.matmul(images, hidden) + hidden_bias), output)


class Report(v1.train.SessionRunHook):
    """Says at the end how well it went."""

    def __init__(self, accuracy: tf.Tensor) -> None:
        self._accuracy = accuracy

    def end(self, session: v1.Session) -> None:
        """Compare what ranks have."""
        values = session.run(v1.global_variables())
        digests = hvd.allgather_object(hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest())
        accuracy = session.run(self._accuracy)
        if hvd.rank() == 0:
            print(f"{hvd.size()} ranks, test accuracy {accuracy:.3f}, identical weights: {len(set(digests)) == 1}")


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="steps of one process; more processes do fewer each")
    parser.add_argument("--folder", help="where rank 0 keeps checkpoints")
    arguments = parser.parse_args()

    hvd.init()
    config = v1.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((images[:TRAINING_ROWS], labels[:TRAINING_ROWS]))
    dataset = dataset.shard(hvd.size(), hvd.rank()).shuffle(TRAINING_ROWS, seed=hvd.rank()).repeat().batch(32)
    batch, wanted = v1.data.make_one_shot_iterator(dataset).get_next()
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=scores_of(batch)))
    correct = tf.equal(tf.argmax(scores_of(tf.constant(images[TRAINING_ROWS:])), 1), labels[TRAINING_ROWS:])
    accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))

    global_step = v1.train.get_or_create_global_step()
    optimizer = hvd.DistributedOptimizer(v1.train.AdagradOptimizer(0.05 * hvd.size()))
    train = optimizer.minimize(loss, global_step=global_step)

    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),
        v1.train.StopAtStepHook(num_steps=arguments.steps // hvd.size()),
        Report(accuracy),
    ]
    # One rank writes, or they would overwrite each other's files.
    folder = arguments.folder if hvd.rank() == 0 else None
    with v1.train.MonitoredTrainingSession(checkpoint_dir=folder, config=config, hooks=hooks) as session:
        while not session.should_stop():
            session.run(train)


if __name__ == "__main__":
    main()
