# SPDX-License-Identifier: Apache-2.0
"""
Mixed precision with loss scaling on several processes.

Keras computes in float16 and scales the loss, so that small gradients do not vanish; a step whose gradients overflow is
skipped, and the scale is halved. Here one rank gets a batch that overflows: all ranks skip that step, because each
looks at the gradients of all. The script needs nothing for it but the usual `hvd.DistributedOptimizer`.

    horovodrun -np 2 examples/tensorflow/keras_mixed_precision.py
"""

from __future__ import annotations

import argparse

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

BATCH, STEPS = 32, 20


def scale_of(optimizer: tf.keras.optimizers.Optimizer) -> float:
    """Return the factor of the loss: Keras 3 and tf_keras have different names for it."""
    return float(np.asarray(optimizer.dynamic_scale if hasattr(optimizer, "dynamic_scale") else optimizer.loss_scale))


def main() -> None:
    """Train and say what the loss is multiplied with in the end."""
    parser = argparse.ArgumentParser(description=__doc__.strip().split("\n")[0])
    parser.add_argument("--epochs", type=int, default=4, help=f"of {STEPS} steps each")
    epochs = parser.parse_args().epochs
    hvd.init()
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    tf.keras.utils.set_random_seed(hvd.rank())

    pictures, labels = load_digits(return_X_y=True)
    mine = slice(hvd.rank(), None, hvd.size())
    pictures, labels = (pictures[mine] / 16.0).astype("float32"), labels[mine]
    if hvd.rank() == hvd.size() - 1:
        pictures[5] = np.inf  # a broken picture, on one rank only

    model = tf.keras.Sequential(
        [
            tf.keras.Input([64]),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10, dtype="float32"),  # the loss is computed in float32
        ]
    )
    model.compile(
        hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.002)),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    start_alike = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    batches = tf.data.Dataset.from_tensor_slices((pictures, labels)).batch(BATCH).take(STEPS).repeat()
    model.fit(batches, shuffle=False, steps_per_epoch=STEPS, epochs=epochs, callbacks=[start_alike], verbose=0)

    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    assert np.isfinite(weights).all()
    identical = len(np.unique(hvd.allgather(weights[np.newaxis]).numpy(), axis=0)) == 1
    scales = hvd.allgather(np.array([scale_of(model.optimizer)])).numpy()
    assert len(set(scales)) == 1
    # Each epoch contains the broken picture once.
    scale = f"{scales[0]:g} = 2 ** {np.log2(scales[0]):.0f}"
    print(f"rank {hvd.rank()}: identical weights: {identical}, the loss is multiplied with {scale}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
