# SPDX-License-Identifier: Apache-2.0
"""
Keras's `fit` on handwritten digits that goes on when ranks are lost or come.

Numbers mark the lines that make an ordinary program of horovod.tensorflow.keras elastic.

    horovodrun -np 3 --min-np 1 examples/tensorflow/elastic_keras.py

Then kill any of the ranks: `kill -9 PID`.
"""

from __future__ import annotations

import argparse
import hashlib
import os

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TRAINING_ROWS = 1440


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
    model.compile(
        hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.003)),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    # 1. The state, which is kept in memory and given to ranks that come.
    state = hvd.elastic.KerasState(model, batch=0, epoch=0, processed_num=0)

    # 2. The part that is called again, with the state of the last commit, when ranks are lost or come.
    @hvd.elastic.run
    def train(state: hvd.elastic.KerasState) -> None:
        if hvd.rank() == 0:
            print(f"{hvd.size()} ranks, rank 0 is process {os.getpid()}, epoch {state.epoch}", flush=True)
        # Every step has the same 96 rows, whatever the number of ranks is.
        mine = hvd.elastic.shard(data, state, global_batch=96, shuffle=TRAINING_ROWS, seed=1)
        model.fit(
            mine.prefetch(2),
            epochs=epochs,
            initial_epoch=state.epoch,
            shuffle=False,  # the data set does
            # 3. When the state is kept, and where an interrupted epoch goes on.
            callbacks=[
                hvd.elastic.CommitStateCallback(state, batches_per_commit=5),
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.UpdateEpochStateCallback(state),
            ],
            verbose=2 if hvd.rank() == 0 else 0,
        )

    train(state)
    scores = model(images[TRAINING_ROWS:])
    accuracy = float(np.mean(np.argmax(scores, axis=1) == labels[TRAINING_ROWS:]))
    digest = hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()[:12]
    print(f"{hvd.size()} ranks, test accuracy {accuracy:.3f}, weights {digest}")


if __name__ == "__main__":
    main()
