# SPDX-License-Identifier: Apache-2.0
"""
Softmax regression on handwritten digits that goes on when ranks are lost or come.

Every step has the same 120 rows, whatever the number of ranks is, so the result does not depend on who was lost.

    horovodrun -np 3 --min-np 1 examples/numpy/elastic_digits.py

Then kill any of the ranks: `kill -9 PID`.
"""

from __future__ import annotations

import argparse
import hashlib
import os

import horovod.numpy as hvd
import numpy as np
from sklearn.datasets import load_digits

TRAINING_ROWS = 1440
CLASSES = 10


def gradient_of(weights: np.ndarray, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the gradient of the mean cross entropy."""
    scores = features @ weights
    probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    probabilities[np.arange(len(labels)), labels] -= 1.0
    return features.T @ probabilities / len(labels)


@hvd.elastic.run
def train(state: hvd.elastic.NumpyState, features: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    """Train; hvd calls this again, with the state of the last commit, when ranks are lost or come."""
    weights, sampler = state.arrays["weights"], state.sampler
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, rank 0 is process {os.getpid()}, epoch {sampler.epoch}", flush=True)
    while sampler.epoch < epochs:
        rows = list(sampler)
        for first in range(0, len(rows), sampler.batch_size):
            batch = rows[first : first + sampler.batch_size]
            gradient = sampler.weight * gradient_of(weights, features[batch], labels[batch])
            weights -= hvd.allreduce(gradient, name="gradient")
            sampler.record_batch(first, len(batch))
            state.commit()
        sampler.set_epoch(sampler.epoch + 1)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--epochs", type=int, default=50)
    epochs = parser.parse_args().epochs
    hvd.init()
    features, labels = load_digits(return_X_y=True)
    features = np.hstack([features / 16.0, np.ones((len(labels), 1))])
    weights = np.zeros((features.shape[1], CLASSES))
    sampler = hvd.elastic.ElasticSampler(range(TRAINING_ROWS), seed=1, global_batch=120)
    train(hvd.elastic.NumpyState({"weights": weights}, sampler=sampler), features, labels, epochs)

    accuracy = (np.argmax(features[TRAINING_ROWS:] @ weights, axis=1) == labels[TRAINING_ROWS:]).mean()
    digest = hashlib.sha256(weights.tobytes()).hexdigest()[:12]
    print(f"{hvd.size()} ranks, test accuracy {accuracy:.3f}, weights {digest}")


if __name__ == "__main__":
    main()
