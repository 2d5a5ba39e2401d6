# SPDX-License-Identifier: Apache-2.0
"""
Handwritten digits with Keras 3 on JAX: `fit`, callbacks, and a learning rate that warms up.

    KERAS_BACKEND=jax horovodrun -np 2 examples/jax/keras_fit.py

With KERAS_BACKEND=torch it runs on PyTorch.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import horovod.keras as hvd
import keras
import numpy as np
from sklearn.datasets import load_digits


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32, help="rows of a rank")
    arguments = parser.parse_args()

    hvd.init()
    keras.utils.set_random_seed(hvd.rank())
    features, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    features, labels = (features[order] / 16).astype(np.float32), labels[order]
    rows = 1436 // hvd.size()  # the same number on all ranks
    own = slice(hvd.rank() * rows, (hvd.rank() + 1) * rows)

    layers = keras.layers
    model = keras.Sequential([keras.Input([64]), layers.Dense(64, activation="relu"), layers.Dense(10)])
    rate = 0.002 * hvd.size()
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.Adam(rate)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(rate, warmup_epochs=1),
    ]
    model.fit(
        features[own], labels[own], batch_size=arguments.batch, epochs=arguments.epochs, verbose=0, callbacks=callbacks
    )
    _, accuracy = model.evaluate(features[1436:], labels[1436:], verbose=0)
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, Keras on {hvd.backend}, test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
