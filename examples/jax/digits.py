# SPDX-License-Identifier: Apache-2.0
"""
A small convolutional network on real handwritten digits, data-parallel in JAX with optax.

    python examples/jax/digits.py               # one process
    horovodrun -np 2 examples/jax/digits.py     # two
"""

from __future__ import annotations

import argparse

import horovod.jax as hvd
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

TRAINING_ROWS = 1437


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return images and labels for training and for testing."""
    features, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images = features[order].reshape(-1, 8, 8, 1).astype(np.float32) / 16
    labels = labels[order].astype(np.int32)
    return (images[:TRAINING_ROWS], labels[:TRAINING_ROWS]), (images[TRAINING_ROWS:], labels[TRAINING_ROWS:])


def make_params(key: jax.Array) -> dict[str, jax.Array]:
    """Return random weights."""
    shapes = {"first": (3, 3, 1, 16), "second": (3, 3, 16, 32), "output": (512, 10)}
    keys = jax.random.split(key, len(shapes))
    return {
        name: jax.random.normal(one, shape) * np.prod(shape[:-1]) ** -0.5
        for one, (name, shape) in zip(keys, shapes.items())
    }


def predict(params: dict[str, jax.Array], images: jax.Array) -> jax.Array:
    """Return a score for each digit."""
    for name in ("first", "second"):
        images = jax.lax.conv_general_dilated(
            images, params[name], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        images = jax.nn.relu(images)
        if name == "first":
            images = jax.lax.reduce_window(images, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return images.reshape(len(images), -1) @ params["output"]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32, help="rows of a rank")
    parser.add_argument("--passes", type=int, default=1, help="batches whose gradients make one step")
    arguments = parser.parse_args()

    hvd.init()
    (images, labels), test = load()
    optimizer = hvd.DistributedGradientTransformation(
        optax.adam(0.002 * hvd.size()), backward_passes_per_step=arguments.passes
    )
    params = hvd.broadcast_parameters(make_params(jax.random.key(hvd.rank())), root_rank=0)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, images, labels):
        def loss(params):
            return optax.softmax_cross_entropy_with_integer_labels(predict(params, images), labels).mean()

        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    # All ranks draw the same order, and each takes the same number of rows of it.
    rows = arguments.batch * hvd.size()
    order = np.random.default_rng(1)
    for _ in range(arguments.epochs):
        shuffled = order.permutation(TRAINING_ROWS)
        for begin in range(0, TRAINING_ROWS - rows + 1, rows):
            own = shuffled[begin + hvd.rank() : begin + rows : hvd.size()]
            params, state = step(params, state, images[own], labels[own])

    images, labels = (array[hvd.rank() :: hvd.size()] for array in test)
    right = (predict(params, images).argmax(1) == labels).sum()
    right, count = hvd.allreduce(jnp.array([right, len(labels)]), op=hvd.Sum, name="accuracy")
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, test accuracy {right / count:.3f}")


if __name__ == "__main__":
    main()
