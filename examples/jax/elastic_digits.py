# SPDX-License-Identifier: Apache-2.0
"""
Softmax regression on handwritten digits in JAX that goes on when ranks are lost or come.

Every step has the same 120 rows, whatever the number of ranks is, so the result does not depend on who was lost.

    horovodrun -np 3 --min-np 1 examples/jax/elastic_digits.py

Then kill any of the ranks: `kill -9 PID`.
"""

from __future__ import annotations

import argparse
import hashlib
import os

import horovod.jax as hvd
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

TRAINING_ROWS = 1440


@jax.jit
def gradient_of(params: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
    """Return the gradient of the mean cross entropy."""

    def loss(params: dict[str, jax.Array]) -> jax.Array:
        scores = images @ params["weights"] + params["bias"]
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    return jax.grad(loss)(params)


@hvd.elastic.run
def train(state: hvd.elastic.JaxState, images: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    """Train; hvd calls this again, with the state of the last commit, when ranks are lost or come."""
    sampler = state.sampler
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, rank 0 is process {os.getpid()}, epoch {sampler.epoch}", flush=True)
    while sampler.epoch < epochs:
        rows = list(sampler)
        for first in range(0, len(rows), sampler.batch_size):
            batch = np.asarray(rows[first : first + sampler.batch_size])
            gradient = gradient_of(state.params, images[batch], labels[batch])
            for name in sorted(gradient):
                mean = hvd.allreduce(sampler.weight * gradient[name], name=name)
                state.params = {**state.params, name: state.params[name] - mean}
            sampler.record_batch(first, len(batch))
            state.commit()
        sampler.set_epoch(sampler.epoch + 1)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    epochs = parser.parse_args().epochs
    hvd.init()
    features, labels = load_digits(return_X_y=True)
    images, labels = (features / 16).astype(np.float32), labels.astype(np.int32)
    params = {"weights": jnp.zeros((64, 10)), "bias": jnp.zeros(10)}
    # The arrays are new in each step, so a commit can hold them and copies nothing.
    sampler = hvd.elastic.ElasticSampler(range(TRAINING_ROWS), seed=1, global_batch=120)
    state = hvd.elastic.JaxState(donated=False, params=params, sampler=sampler)
    train(state, images, labels, epochs)

    scores = images[TRAINING_ROWS:] @ state.params["weights"] + state.params["bias"]
    accuracy = float((jnp.argmax(scores, axis=1) == labels[TRAINING_ROWS:]).mean())
    digest = hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in state.params.values())).hexdigest()[:12]
    print(f"{hvd.size()} ranks, test accuracy {accuracy:.3f}, weights {digest}")


if __name__ == "__main__":
    main()
