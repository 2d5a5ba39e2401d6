# SPDX-License-Identifier: Apache-2.0
"""
Two trainings in one job: the even ranks try one learning rate, the odd ranks another.

Each half is a process set: it reduces its own gradients and does not wait for the other half.

    horovodrun -np 4 examples/tensorflow/process_sets.py
"""

from __future__ import annotations

import argparse
import hashlib

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TRAINING_ROWS = 1440
LEARNING_RATES = (0.1, 0.001)


def main() -> None:
    """Train, and say who won."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps

    hvd.init(process_sets="dynamic")
    half = hvd.rank() % 2
    if hvd.size() == 1:
        own = hvd.global_process_set
    else:
        # Every rank adds both sets, member or not.
        own = [hvd.add_process_set(range(first, hvd.size(), 2)) for first in (0, 1)][half]

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((images[:TRAINING_ROWS], labels[:TRAINING_ROWS]))
    # The rows are shared by the ranks of a set, not by all.
    dataset = dataset.shard(own.size(), own.rank()).shuffle(TRAINING_ROWS, seed=own.rank()).repeat().batch(32)

    model = tf.keras.Sequential([tf.keras.Input([64]), tf.keras.layers.Dense(10)])
    optimizer = tf.optimizers.Adam(LEARNING_RATES[half])
    loss_of = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
    # The root is a rank of the whole job: the first member.
    hvd.broadcast_variables(model.variables, root_rank=own.ranks[0], process_set=own)

    @tf.function
    def training_step(batch: tf.Tensor, wanted: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(wanted, model(batch, training=True))
        tape = hvd.DistributedGradientTape(tape, process_set=own)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    for batch, wanted in dataset.take(steps):
        training_step(batch, wanted)

    accuracy = float(np.mean(np.argmax(model(images[TRAINING_ROWS:]), axis=1) == labels[TRAINING_ROWS:]))
    weights = b"".join(np.asarray(variable).tobytes() for variable in model.variables)
    everybody = hvd.allgather_object((half, accuracy, hashlib.sha256(weights).hexdigest()))
    if hvd.rank() == 0:
        for number, rate in enumerate(LEARNING_RATES[: hvd.size()]):
            members = [(one, digest) for set_of, one, digest in everybody if set_of == number]
            same = len(set(members)) == 1
            accuracy = members[0][0]
            print(
                f"learning rate {rate}: {len(members)} ranks, test accuracy {accuracy:.3f}, identical weights: {same}"
            )


if __name__ == "__main__":
    main()
