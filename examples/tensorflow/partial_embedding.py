# SPDX-License-Identifier: Apache-2.0
"""
An embedding that is too large for one process: its rows are spread over the ranks, all other layers are on each.

A pixel of a digit with its brightness is a word; a digit is a bag of 64 words. Ranks ask each other for the vectors of
words by alltoall, whose gradient carries the vectors' gradients back. So the rows that a rank has already get the
gradients of all ranks' batches and must not be reduced again: the layer is a local one.

    python examples/tensorflow/partial_embedding.py               # one process
    horovodrun -np 2 examples/tensorflow/partial_embedding.py     # two: the same result
"""

from __future__ import annotations

import argparse
import hashlib

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TRAINING_ROWS, BATCH_ROWS = 1440, 96  # shares of 1, 2, 3 and 4 ranks are equal
BRIGHTNESSES = 17
WORDS = 64 * BRIGHTNESSES


class SpreadEmbedding(tf.keras.layers.Layer):
    """Rank r has the vectors of the words r, r + size, r + 2 size, ..."""

    def __init__(self, words: int, length: int) -> None:
        super().__init__()
        everything = np.random.default_rng(0).normal(size=(words, length)).astype(np.float32) * 0.05
        own = everything[hvd.rank() :: hvd.size()]
        self.table = self.add_weight(shape=own.shape, initializer=lambda *_, **__: tf.constant(own), name="table")

    def call(self, words: tf.Tensor) -> tf.Tensor:
        """Return the vectors of words."""
        flat = tf.reshape(words, [-1])
        owner = flat % hvd.size()
        order = tf.argsort(owner, stable=True)
        questions = tf.math.bincount(owner, minlength=hvd.size(), dtype=tf.int32)
        asked, asked_by = hvd.alltoall(tf.gather(flat, order), questions, name="words")
        vectors = tf.gather(tf.convert_to_tensor(self.table), asked // hvd.size())
        answers, _ = hvd.alltoall(vectors, asked_by, name="vectors")
        answers = tf.gather(answers, tf.math.invert_permutation(order))
        return tf.reshape(answers, tf.concat([tf.shape(words), [self.table.shape[-1]]], 0))


def main() -> None:
    """Train, and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--steps", type=int, default=150)
    steps = parser.parse_args().steps

    hvd.init()
    if BATCH_ROWS % hvd.size():
        raise SystemExit(f"{hvd.size()} ranks cannot share batches of {BATCH_ROWS} rows equally")
    images, labels = load_digits(return_X_y=True)
    words = (images.astype(np.int32) + np.arange(64, dtype=np.int32) * BRIGHTNESSES).astype(np.int32)

    tf.keras.utils.set_random_seed(0)
    embedding = SpreadEmbedding(WORDS, 16)
    classes = tf.keras.layers.Dense(10)
    loss_of = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.optimizers.Adam(0.01)

    def scores_of(batch: tf.Tensor) -> tf.Tensor:
        vectors = embedding(batch)
        return classes(tf.reshape(vectors, [-1, 64 * 16]))

    @tf.function(reduce_retracing=True)
    def training_step(batch: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(wanted, scores_of(batch))
        tape = hvd.PartialDistributedGradientTape(tape, local_layers=[embedding])
        variables = [embedding.table, *classes.trainable_variables]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    share = BATCH_ROWS // hvd.size()
    for step in range(steps):
        first = step * BATCH_ROWS % TRAINING_ROWS + hvd.rank() * share
        loss = training_step(words[first : first + share], labels[first : first + share])
        if step == 0:
            hvd.broadcast_variables(classes.variables, root_rank=0)
        if step % 50 == 0 and hvd.rank() == 0:
            print(f"step {step}: loss {float(loss):.3f}")

    # A lookup is a collective operation, so every rank does it.
    accuracy = float(np.mean(np.argmax(scores_of(words[TRAINING_ROWS:]), axis=1) == labels[TRAINING_ROWS:]))
    shared = b"".join(np.asarray(variable).tobytes() for variable in classes.variables)
    digests = hvd.allgather_object(hashlib.sha256(shared).hexdigest())
    rows = hvd.allgather_object(int(embedding.table.shape[0]))
    if hvd.rank() == 0:
        print(f"rows of the embedding by rank: {rows}")
        print(f"{hvd.size()} ranks, test accuracy {accuracy:.3f}, identical weights: {len(set(digests)) == 1}")


if __name__ == "__main__":
    main()
