# SPDX-License-Identifier: Apache-2.0
"""
Checkpoints that rank 0 alone writes and reads: run it twice, and the second run goes on where the first one ended.

    horovodrun -np 2 examples/tensorflow/checkpoint_resume.py --folder checkpoints
    horovodrun -np 4 examples/tensorflow/checkpoint_resume.py --folder checkpoints     # as many ranks as you like
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
    """Train some epochs more, and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3, help="how many more")
    parser.add_argument("--folder", required=True, help="where checkpoints are; only rank 0 needs to reach it")
    arguments = parser.parse_args()

    hvd.init()
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    model = tf.keras.Sequential(
        [tf.keras.Input([64]), tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)]
    )
    optimizer = tf.optimizers.Adam(0.001 * hvd.size())
    optimizer.build(model.trainable_variables)
    loss_of = tf.losses.SparseCategoricalCrossentropy(from_logits=True)

    epoch = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch)
    manager = None
    if hvd.rank() == 0:
        manager = tf.train.CheckpointManager(checkpoint, arguments.folder, max_to_keep=2)
        checkpoint.restore(manager.latest_checkpoint)
    # Restored or not, every rank begins with rank 0's values, but with the learning rate for this number of ranks.
    hvd.broadcast_variables([*model.variables, *optimizer.variables, epoch], root_rank=0)
    optimizer.learning_rate = 0.001 * hvd.size()

    @tf.function
    def training_step(batch: tf.Tensor, wanted: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(wanted, model(batch, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    rows = TRAINING_ROWS // hvd.size()
    first_epoch = int(epoch)
    for number in range(first_epoch, first_epoch + arguments.epochs):
        # Every rank makes the same order, a new one in each epoch, and takes its own part.
        order = np.random.default_rng(number).permutation(TRAINING_ROWS)[hvd.rank() * rows : (hvd.rank() + 1) * rows]
        for first in range(0, rows - 31, 32):
            chosen = order[first : first + 32]
            training_step(tf.constant(images[chosen]), tf.constant(labels[chosen]))
        epoch.assign_add(1)
        if manager is not None:
            manager.save()

    accuracy = float(np.mean(np.argmax(model(images[TRAINING_ROWS:]), axis=1) == labels[TRAINING_ROWS:]))
    weights = b"".join(np.asarray(variable).tobytes() for variable in [*model.variables, *optimizer.variables])
    digests = hvd.allgather_object(hashlib.sha256(weights).hexdigest())
    if hvd.rank() == 0:
        print(f"epochs {first_epoch} to {int(epoch)}")
        print(f"{hvd.size()} ranks, test accuracy {accuracy:.3f}, identical weights: {len(set(digests)) == 1}")


if __name__ == "__main__":
    main()
