# SPDX-License-Identifier: Apache-2.0
"""
Handwritten digits with a loop of one's own: tf.GradientTape, data-parallel.

    python examples/tensorflow/tape.py               # one process
    horovodrun -np 2 examples/tensorflow/tape.py     # two
"""

from __future__ import annotations

import argparse
import hashlib

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TRAINING_ROWS = 1440


def main() -> None:
    """Train, and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="steps of one process; more processes do fewer each")
    steps = parser.parse_args().steps

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    # Each rank sees its own rows, in its own order.
    dataset = tf.data.Dataset.from_tensor_slices((images[:TRAINING_ROWS], labels[:TRAINING_ROWS]))
    dataset = dataset.shard(hvd.size(), hvd.rank()).shuffle(TRAINING_ROWS, seed=hvd.rank()).repeat().batch(32)

    model = tf.keras.Sequential(
        [tf.keras.Input([64]), tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)]
    )
    loss_of = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
    # The batch of all ranks together is larger: each step may be, too.
    optimizer = tf.optimizers.Adam(0.001 * hvd.size())

    @tf.function
    def training_step(batch, wanted, first_batch):
        with tf.GradientTape() as tape:
            loss = loss_of(wanted, model(batch, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        # After the first step the optimizer has all its variables. All ranks go on with rank 0's values.
        if first_batch:
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(optimizer.variables, root_rank=0)
        return loss

    for step, (batch, wanted) in enumerate(dataset.take(steps // hvd.size())):
        loss = training_step(batch, wanted, step == 0)
        if step % 50 == 0 and hvd.rank() == 0:
            print(f"step {step}: loss {float(loss):.3f}")

    scores = model(images[TRAINING_ROWS:])
    accuracy = float(np.mean(np.argmax(scores, axis=1) == labels[TRAINING_ROWS:]))
    weights = b"".join(np.asarray(variable).tobytes() for variable in [*model.variables, *optimizer.variables])
    digests = hvd.allgather_object(hashlib.sha256(weights).hexdigest())
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, test accuracy {accuracy:.3f}, identical weights: {len(set(digests)) == 1}")


if __name__ == "__main__":
    main()
