# SPDX-License-Identifier: Apache-2.0
"""
Handwritten digits under a strategy whose ranks a launcher starts.

    python examples/tensorflow/strategy_horovod.py               # one process
    horovodrun -np 2 examples/tensorflow/strategy_horovod.py     # two
    mpirun -np 2 -H localhost:2 python examples/tensorflow/strategy_horovod.py
"""

from __future__ import annotations

import argparse
import hashlib

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from horovod.tensorflow.strategy import HorovodStrategy
from sklearn.datasets import load_digits

TRAINING_ROWS = 1440
BATCH = 48  # of all ranks together


def main() -> None:
    """Train, and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    epochs = parser.parse_args().epochs

    strategy = HorovodStrategy()

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)

    # Every rank would begin with weights of its own; under the scope all begin with rank 0's.
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.Input([64]), tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)]
        )
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.Adam(0.002), loss, metrics=["accuracy"])

    # The strategy shares each batch out among the ranks.
    model.fit(images[:TRAINING_ROWS], labels[:TRAINING_ROWS], batch_size=BATCH, epochs=epochs, verbose=0)
    _, accuracy = model.evaluate(images[TRAINING_ROWS:], labels[TRAINING_ROWS:], batch_size=BATCH, verbose=0)
    digests = hvd.allgather_object(hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest())
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, test accuracy {accuracy:.3f}, identical weights: {len(set(digests)) == 1}")


if __name__ == "__main__":
    main()
