# SPDX-License-Identifier: Apache-2.0
"""
Pictures of the shape of house numbers, 32 x 32 in three colors, trained by Keras's `fit` on several processes.

The data are handwritten digits on walls of random colors, made here from those of scikit-learn: nothing is downloaded.
A file of the real ones (X of 32 x 32 x 3 x n and y of n, as SVHN has them) is read with --data.

    python examples/tensorflow/house_numbers.py                  # one process
    horovodrun -np 2 examples/tensorflow/house_numbers.py        # two
"""

from __future__ import annotations

import argparse

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

PICTURES = 1600  # to train with; the others to test with


def painted() -> tuple[np.ndarray, np.ndarray]:
    """Return digits in random colors on walls of other ones, each somewhere in its picture."""
    digits, labels = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    ink = np.kron(digits.reshape(-1, 8, 8) / 16.0, np.ones([3, 3]))[..., np.newaxis]
    walls = random.uniform(0.0, 0.5, [len(labels), 1, 1, 3]) + random.normal(0.0, 0.03, [len(labels), 32, 32, 3])
    for picture, drawn, color in zip(walls, ink, random.uniform(0.4, 0.5, [len(labels), 3])):
        top, left = random.integers(2, 7, 2)
        picture[top : top + 24, left : left + 24] += drawn * color
    return np.clip(walls, 0.0, 1.0).astype("float32"), labels.astype("int64")


def loaded(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the pictures of a file; its label 10 means the digit 0."""
    from scipy.io import loadmat

    file = loadmat(path)
    return np.moveaxis(file["X"], 3, 0).astype("float32") / 255.0, file["y"].ravel().astype("int64") % 10


def network() -> tf.keras.Model:
    """Return a convolutional network."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input([32, 32, 3]),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.BatchNormalization(),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(10, activation="softmax"),
        ]
    )


def main() -> None:
    """Train, and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=40, help="pictures per step and process")
    parser.add_argument("--data", help="a .mat file of SVHN; without it digits are painted")
    parser.add_argument("--checkpoints", help="folder for checkpoints")
    arguments = parser.parse_args()

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    tf.keras.utils.set_random_seed(hvd.rank())

    pictures, labels = loaded(arguments.data) if arguments.data else painted()
    mine = slice(hvd.rank(), PICTURES, hvd.size())
    steps = PICTURES // hvd.size() // arguments.batch
    dataset = tf.data.Dataset.from_tensor_slices((pictures[mine], labels[mine]))
    dataset = dataset.shuffle(PICTURES, seed=hvd.rank()).batch(arguments.batch).repeat()

    scaled_lr = 0.001 * hvd.size()
    model = network()
    model.compile(
        hvd.DistributedOptimizer(tf.optimizers.Adam(scaled_lr)),
        tf.losses.SparseCategoricalCrossentropy(),
        metrics=["accuracy"],
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=2, steps_per_epoch=steps),
    ]
    if arguments.checkpoints and hvd.rank() == 0:
        callbacks.append(tf.keras.callbacks.ModelCheckpoint(f"{arguments.checkpoints}/checkpoint-{{epoch}}.h5"))
    verbose = 2 if hvd.rank() == 0 else 0
    model.fit(dataset, steps_per_epoch=steps, epochs=arguments.epochs, callbacks=callbacks, verbose=verbose)

    accuracy = model.evaluate(pictures[PICTURES:], labels[PICTURES:], verbose=0)[1]
    # The moving averages of batch normalization are each rank's own.
    weights = [one.numpy() for one in model.trainable_variables]
    same = all((hvd.broadcast(one, root_rank=0).numpy() == one).all() for one in weights)
    print(f"rank {hvd.rank()} of {hvd.size()}: test accuracy {accuracy:.3f}, identical weights: {same}")


if __name__ == "__main__":
    main()
