# SPDX-License-Identifier: Apache-2.0
"""
Softmax regression on real handwritten digits, data-parallel in NumPy.

Each rank trains on its own rows; gradients are averaged by one allreduce a step. The shards are equal in size, so the
average of the ranks' gradients is the gradient of the whole batch: the result does not depend on the number of ranks.

    python examples/numpy/digits.py               # one process
    horovodrun -np 2 examples/numpy/digits.py     # two
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time

import horovod.numpy as hvd
import numpy as np
from sklearn.datasets import load_digits

# Shards of 2, 3, 4, 5, 6, 8, 9 or 10 ranks are equal, and so are their batches.
TRAINING_ROWS = 1440
BATCHES_PER_EPOCH = 4
CLASSES = 10


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return features and labels for training and for testing; the last feature is the constant 1."""
    features, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    features = np.hstack([features[order] / 16.0, np.ones((len(labels), 1))])
    labels = labels[order]
    return features[:TRAINING_ROWS], labels[:TRAINING_ROWS], features[TRAINING_ROWS:], labels[TRAINING_ROWS:]


def loss_and_gradient(weights: np.ndarray, features: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the mean cross entropy and its gradient."""
    scores = features @ weights
    scores -= scores.max(axis=1, keepdims=True)
    probabilities = np.exp(scores)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(probabilities[rows, labels]).mean()
    probabilities[rows, labels] -= 1.0
    return float(loss), features.T @ probabilities / len(labels)


def train(epochs: int, learning_rate: float) -> dict:
    """Train and return what this rank saw."""
    features, labels, test_features, test_labels = load()
    rank, size = hvd.rank(), hvd.size()
    batch_rows = TRAINING_ROWS // BATCHES_PER_EPOCH
    if batch_rows % size:
        raise SystemExit(f"{size} ranks cannot share batches of {batch_rows} rows equally")
    share = batch_rows // size

    weights = hvd.broadcast(np.zeros((features.shape[1], CLASSES)), root_rank=0, name="weights")
    losses = []
    start = time.perf_counter()
    for _ in range(epochs):
        epoch_loss = 0.0
        for batch in range(BATCHES_PER_EPOCH):
            first = batch * batch_rows + rank * share
            loss, gradient = loss_and_gradient(weights, features[first : first + share], labels[first : first + share])
            weights -= learning_rate * hvd.allreduce_(gradient, op=hvd.Average, name="gradient")
            epoch_loss += loss / BATCHES_PER_EPOCH
        losses.append(float(hvd.allreduce(epoch_loss, op=hvd.Average, name="loss")))
    seconds = time.perf_counter() - start

    accuracy = float((np.argmax(test_features @ weights, axis=1) == test_labels).mean())
    digests = hvd.allgather_object(hashlib.sha256(weights.tobytes()).hexdigest())
    return {
        "rank": rank,
        "size": size,
        "losses": losses,
        "accuracy": accuracy,
        "samples_per_second": epochs * TRAINING_ROWS / seconds,
        "identical_weights": len(set(digests)) == 1,
        "weights": weights.ravel().tolist(),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=1.0)
    parser.add_argument("--json", action="store_true", help="print everything as one line of JSON")
    arguments = parser.parse_args()
    hvd.init()
    result = train(arguments.epochs, arguments.learning_rate)
    if arguments.json:
        print(json.dumps(result))
    elif hvd.rank() == 0:
        print(f"{hvd.size()} ranks, loss {result['losses'][-1]:.4f}, test accuracy {result['accuracy']:.3f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
