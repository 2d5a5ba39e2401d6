# SPDX-License-Identifier: Apache-2.0
"""
A loop of one's own with tf.GradientTape on handwritten digits that goes on when ranks are lost or come.

Numbers mark the lines that make an ordinary program of horovod.tensorflow elastic.

    horovodrun -np 3 --min-np 1 examples/tensorflow/elastic_tape.py

Then kill any of the ranks: `kill -9 PID`.
"""

from __future__ import annotations

import argparse
import hashlib
import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TRAINING_ROWS = 1440
BATCH = 32


def main() -> None:
    """Train, and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    epochs = parser.parse_args().epochs
    hvd.init()
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((images[:TRAINING_ROWS], labels[:TRAINING_ROWS]))
    model = tf.keras.Sequential(
        [tf.keras.Input([64]), tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)]
    )
    loss_of = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.optimizers.Adam(0.001 * hvd.size())

    @tf.function
    def training_step(batch, wanted):
        with tf.GradientTape() as tape:
            loss = loss_of(wanted, model(batch, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    # 1. The state, which is kept in memory and given to ranks that come.
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, epoch=0, processed_num=0)
    state.register_reset_callbacks([hvd.elastic.rescale_lr("linear")])

    # 2. The part that is called again, with the state of the last commit, when ranks are lost or come.
    @hvd.elastic.run
    def train(state):
        if hvd.rank() == 0:
            print(f"{hvd.size()} ranks, rank 0 is process {os.getpid()}, epoch {state.epoch}", flush=True)
        mine = hvd.elastic.shard(data, state, batch_size=BATCH, shuffle=TRAINING_ROWS)
        while state.epoch < epochs:
            for step, (batch, wanted) in enumerate(mine):
                training_step(batch, wanted)
                state.processed_num += BATCH * hvd.size()
                if step % 5 == 4:
                    state.commit()  # 3. Keep the state.
            state.epoch += 1
            state.processed_num = 0
            state.commit()

    train(state)
    scores = model(images[TRAINING_ROWS:])
    accuracy = float(np.mean(np.argmax(scores, axis=1) == labels[TRAINING_ROWS:]))
    digest = hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in model.variables)).hexdigest()[:12]
    print(f"{hvd.size()} ranks, test accuracy {accuracy:.3f}, weights {digest}")


if __name__ == "__main__":
    main()
