# SPDX-License-Identifier: Apache-2.0
"""
Training on the cores of machines without a GPU: how many threads, which rows, who writes; and how long it took.

A program of TensorFlow 1 with Keras's layers in its graph, started on several hosts as on one:

    horovodrun -np 2 --compat tf1 examples/tensorflow/cpu_sample.py
    horovodrun -n 2 -H host1,host2 --compat tf1 examples/tensorflow/cpu_sample.py
    HOROVOD_COMPAT=tf1 python examples/tensorflow/cpu_sample.py                      # one process
"""

import argparse
import os
import time

# Each process gets its share of the cores. These are read when TensorFlow is imported.
CORES = max(1, (os.cpu_count() or 1) // int(os.environ.get("HOROVOD_LOCAL_SIZE", "1")))
os.environ.setdefault("OMP_NUM_THREADS", str(CORES))
os.environ.setdefault("KMP_BLOCKTIME", "0")
os.environ.setdefault("KMP_AFFINITY", "granularity=fine,compact,1,0")

import horovod.tensorflow as hvd  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

BATCH = 32


def rows_of(rank: int, size: int) -> "tuple[np.ndarray, np.ndarray]":
    """Return this rank's part of the data; the parts are equal, and no row is in two of them."""
    images, labels = load_digits(return_X_y=True)
    rows = len(labels) // size
    part = slice(rank * rows, (rank + 1) * rows)
    return (images[part] / 16.0).astype(np.float32), labels[part].astype(np.int64)


def batches(images: np.ndarray, labels: np.ndarray):
    """Yield batches forever, in a new order in each epoch."""
    while True:
        order = np.random.permutation(len(labels))
        for first in range(0, len(labels) - BATCH + 1, BATCH):
            yield images[order[first : first + BATCH]], labels[order[first : first + BATCH]]


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="steps of one process; more processes do fewer each")
    parser.add_argument("--folder", default="./checkpoints", help="where rank 0 keeps checkpoints")
    arguments = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.INFO)
    begin = time.time()

    hvd.init()
    images, labels = rows_of(hvd.rank(), hvd.size())
    image = tf.placeholder(tf.float32, [None, 64], name="image")
    label = tf.placeholder(tf.int64, [None], name="label")
    hidden = tf.layers.dense(tf.reshape(image, [-1, 64]), 128, activation=tf.nn.relu)
    hidden = tf.layers.dropout(hidden, rate=0.1, training=True)
    loss = tf.losses.sparse_softmax_cross_entropy(label, tf.layers.dense(hidden, 10))

    opt = tf.train.RMSPropOptimizer(0.001 * hvd.size())
    opt = hvd.DistributedOptimizer(opt)
    global_step = tf.train.get_or_create_global_step()
    train_op = opt.minimize(loss, global_step=global_step)

    last_step = arguments.steps // hvd.size()
    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),
        tf.train.StopAtStepHook(last_step=last_step),
        tf.train.LoggingTensorHook(tensors={"loss": loss, "step": global_step}, every_n_iter=100),
    ]
    config = tf.ConfigProto(inter_op_parallelism_threads=2, intra_op_parallelism_threads=CORES)
    checkpoint_dir = arguments.folder if hvd.rank() == 0 else None
    training = batches(images, labels)
    with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir, hooks=hooks, config=config) as mon_sess:
        while not mon_sess.should_stop():
            image_batch, label_batch = next(training)
            mon_sess.run(train_op, feed_dict={image: image_batch, label: label_batch})

    if hvd.rank() == 0:
        print("============================")
        print("Number of tasks: ", hvd.size())
        print(f"Total time is: {time.time() - begin:g}")


if __name__ == "__main__":
    main()
