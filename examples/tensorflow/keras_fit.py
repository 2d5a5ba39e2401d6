# SPDX-License-Identifier: Apache-2.0
"""
A small convolutional network on real handwritten digits, trained by Keras's `fit` on several processes.

A number marks each line that only several processes need.

    python examples/tensorflow/keras_fit.py                  # one process
    horovodrun -np 2 examples/tensorflow/keras_fit.py        # two
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TRAINING_ROWS = 1440  # 357 are left to test with


def load(rank: int, size: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return this rank's pictures and labels to train with, and those that all test with."""
    pictures, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    pictures = (pictures[order] / 16.0).reshape(-1, 8, 8, 1).astype("float32")
    labels = labels[order]
    rows = slice(rank, TRAINING_ROWS, size)  # 3. every rank has rows of its own
    return (pictures[rows], labels[rows]), (pictures[TRAINING_ROWS:], labels[TRAINING_ROWS:])


def network() -> tf.keras.Model:
    """Return the network."""
    return tf.keras.Sequential(
        [
            tf.keras.Input([8, 8, 1]),
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            tf.keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(2),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


class EpochTimes(tf.keras.callbacks.Callback):
    """Measures the time of every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Start the watch."""
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Stop it."""
        self.seconds.append(time.perf_counter() - self._start)


def train(arguments: argparse.Namespace) -> dict:
    """Train and return what this rank saw."""
    training, testing = load(hvd.rank(), hvd.size())
    steps = TRAINING_ROWS // hvd.size() // arguments.batch  # 4. as many on every rank
    rate = arguments.learning_rate * hvd.size()  # 5. for a batch that is larger by the number of ranks

    model = network()
    model.compile(
        hvd.DistributedOptimizer(tf.keras.optimizers.Adam(rate)),  # 6. the gradients of all ranks
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    times = EpochTimes()
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # 7. all ranks start alike
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(rate, warmup_epochs=2, steps_per_epoch=steps),
        times,
    ]
    if arguments.checkpoints and hvd.rank() == 0:  # 8. one process writes and talks
        callbacks.append(tf.keras.callbacks.ModelCheckpoint(os.path.join(arguments.checkpoints, "{epoch}.keras")))
    batches = (
        tf.data.Dataset.from_tensor_slices(training).shuffle(TRAINING_ROWS, seed=1).batch(arguments.batch).repeat()
    )
    history = model.fit(
        batches,
        shuffle=False,  # the data set does
        steps_per_epoch=steps,
        epochs=arguments.epochs,
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 and not arguments.json else 0,
    )
    accuracy = model.evaluate(*testing, verbose=0)[1]
    weights = hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()
    everyone = hvd.allgather(np.frombuffer(bytes.fromhex(weights), np.uint8)[None]).numpy()
    # The first epoch is the one that traces the training step.
    seconds = min(times.seconds[1:] or times.seconds)
    return {
        "size": hvd.size(),
        "losses": [float(loss) for loss in history.history["loss"]],
        "accuracy": float(accuracy),
        "samples_per_second": steps * arguments.batch * hvd.size() / seconds,
        "identical_weights": len(np.unique(everyone, axis=0)) == 1,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=36, help="pictures per step and process")
    parser.add_argument("--learning-rate", type=float, default=0.001, help="of one process")
    parser.add_argument("--checkpoints", help="folder for checkpoints")
    parser.add_argument("--threads", type=int, help="threads that TensorFlow computes with")
    parser.add_argument("--json", action="store_true", help="print everything as one line of JSON")
    arguments = parser.parse_args()
    hvd.init()  # 1. find the others
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:  # 2. a GPU for each process
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    if arguments.threads:
        tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
        tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    tf.keras.utils.set_random_seed(hvd.rank())
    result = train(arguments)
    if hvd.rank() == 0:
        text = f"{hvd.size()} ranks, loss {result['losses'][-1]:.4f}, test accuracy {result['accuracy']:.3f}"
        print(json.dumps(result) if arguments.json else text)
    hvd.shutdown()


if __name__ == "__main__":
    main()
