# SPDX-License-Identifier: Apache-2.0
"""
Handwritten digits by a program of TensorFlow 1, as it was written for it: no tf.compat.v1 in it.

    horovodrun -np 2 --compat tf1 examples/tensorflow/tf1_session.py --folder ckpt     # run it again and it goes on
    HOROVOD_COMPAT=tf1 python examples/tensorflow/tf1_session.py                       # one process
    python -m horovod.compat examples/tensorflow/tf1_session.py                        # what to write today

v1_monitored_session.py is the same for today's TensorFlow without bridges.
"""

import argparse
import hashlib

import tensorflow as tf

tf.logging.set_verbosity(tf.logging.INFO)

import horovod.tensorflow as hvd  # noqa: E402
import numpy as np  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

TRAINING_ROWS = 1440


def network(images: tf.Tensor, labels: tf.Tensor, is_training: bool) -> "tuple[tf.Tensor, tf.Tensor]":
    """Return the loss and the accuracy of a convolutional network."""
    with tf.variable_scope("network", reuse=tf.AUTO_REUSE):
        pictures = tf.reshape(images, [-1, 8, 8, 1])
        found = tf.layers.conv2d(pictures, 16, [3, 3], padding="same", activation=tf.nn.relu, name="found")
        pooled = tf.layers.max_pooling2d(found, 2, 2)
        flat = tf.reshape(pooled, [-1, 4 * 4 * pooled.get_shape()[3].value])
        hidden = tf.layers.dense(flat, 64, activation=tf.nn.relu, name="hidden")
        if is_training:
            hidden = tf.nn.dropout(hidden, 0.9)  # of which nine in ten are kept
        scores = tf.layers.dense(hidden, 10, name="scores")
    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=scores)
    right = tf.equal(tf.argmax(scores, 1), labels)
    return loss, tf.reduce_mean(tf.to_float(right), reduction_indices=[0])


class Report(tf.train.SessionRunHook):
    """Says at the end how well it went."""

    def __init__(self, accuracy: tf.Tensor) -> None:
        self._accuracy = accuracy

    def end(self, session: tf.Session) -> None:
        """Compare what ranks have."""
        values = session.run(tf.global_variables())
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
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(hvd.local_rank())

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((images[:TRAINING_ROWS], labels[:TRAINING_ROWS]))
    dataset = dataset.shard(hvd.size(), hvd.rank()).shuffle(TRAINING_ROWS, seed=hvd.rank()).repeat().batch(32)
    loss, _ = network(*dataset.make_one_shot_iterator().get_next(), is_training=True)
    _, accuracy = network(tf.constant(images[TRAINING_ROWS:]), tf.constant(labels[TRAINING_ROWS:]), is_training=False)

    opt = tf.train.AdagradOptimizer(0.02 * hvd.size())
    opt = hvd.DistributedOptimizer(opt)
    global_step = tf.train.get_or_create_global_step()
    train_op = opt.minimize(loss, global_step=global_step)

    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),
        tf.train.StopAtStepHook(num_steps=arguments.steps // hvd.size()),
        tf.train.LoggingTensorHook(tensors={"step": global_step, "loss": loss}, every_n_iter=50),
        Report(accuracy),
    ]
    # One rank writes, or they would overwrite each other's files.
    checkpoint_dir = arguments.folder if hvd.rank() == 0 else None
    with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir, config=config, hooks=hooks) as mon_sess:
        while not mon_sess.should_stop():
            mon_sess.run(train_op)


if __name__ == "__main__":
    main()
