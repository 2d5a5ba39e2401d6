# SPDX-License-Identifier: Apache-2.0
"""A small network, its data and ways to train it: for tests of Keras, run once with Keras 3 and once with tf_keras."""

from __future__ import annotations

import types
from typing import Callable

import numpy as np
import pytest
from ranks import in_one_start

LEGACY = {"TF_USE_LEGACY_KERAS": "1"}

ROWS, BATCH, CLASSES = 48, 12, 3  # batches can be shared by 2, 3, 4 and 6 ranks


def with_each_keras(*rows: str, ranks: tuple[int, ...] = (2,)) -> Callable:
    """
    Make two tests of a function: one with Keras 3, and one with tf_keras, whose name ends in _keras2.

    The latter runs on the first number of ranks only: the others show what does not depend on Keras.
    """

    def decorate(function: Callable[[], None]) -> Callable:
        scope = function.__globals__
        twin = types.FunctionType(function.__code__, scope, f"{function.__name__}_keras2")
        marked = pytest.mark.row(*rows) if rows else lambda test: test
        scope[twin.__name__] = marked(in_one_start(ranks[0], env=LEGACY)(twin))
        return marked(in_one_start(*ranks)(function))

    return decorate


def modules():
    """tf.keras and our module for it, in ranks only."""
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf

    tf.keras.backend.clear_session()
    tf.keras.backend.set_floatx("float64")  # so that rounding does not hide mistakes
    tf.keras.mixed_precision.set_global_policy("float64")
    return tf.keras, hvd


def is_keras3(keras) -> bool:
    return hasattr(keras.optimizers.SGD, "stateless_apply")


def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    features = random.normal(size=(ROWS, 4))
    return features, random.integers(0, CLASSES, ROWS)


def share(arrays, rank: int, size: int):
    """This rank's rows of every batch."""
    mine = np.arange(ROWS).reshape(-1, size, BATCH // size)[:, rank].ravel()
    return tuple(array[mine] for array in arrays)


def network(keras, hidden: int = 5):
    """Always the same weights."""
    random = np.random.default_rng(4)
    model = keras.Sequential(
        [keras.Input([4]), keras.layers.Dense(hidden, activation="tanh"), keras.layers.Dense(CLASSES)]
    )
    model.set_weights([random.normal(size=weight.shape) * 0.5 for weight in model.get_weights()])
    return model


def loss(keras):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def fit(keras, model, optimizer, batch, *, size: int = 1, epochs: int = 2, callbacks=(), **options):
    """Train, and return the weights."""
    if optimizer is not None:
        model.compile(optimizer, loss(keras), **options)
    model.fit(*batch, batch_size=BATCH // size, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks))
    return model.get_weights()


def by_hand(keras, optimizer, batch, *, size: int = 1, epochs: int = 2):
    """Train without `fit`, one operation after the other: much faster than to trace a step for a few of them."""
    import tensorflow as tf

    model, objective, rows = network(keras), loss(keras), BATCH // size
    for first in list(range(0, len(batch[0]), rows)) * epochs:
        with tf.GradientTape() as tape:
            found = model(batch[0][first : first + rows], training=True)
            error = objective(batch[1][first : first + rows], found)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(error, variables), variables))
    if getattr(optimizer, "use_ema", False):
        optimizer.finalize_variable_values(variables)
    return model.get_weights()


def whole(keras, optimizer, **options):
    """The weights that one process gets."""
    return by_hand(keras, optimizer, data(), **options)


def shared(keras, hvd, optimizer, **options):
    """The weights that ranks get which share the batches."""
    batch = share(data(), hvd.rank(), hvd.size())
    return fit(keras, network(keras), optimizer, batch, size=hvd.size(), **options)


def shared_by_hand(keras, hvd, optimizer, **options):
    """The same without `fit`."""
    return by_hand(keras, optimizer, share(data(), hvd.rank(), hvd.size()), size=hvd.size(), **options)


def close(ours, theirs, tolerance: float = 1e-9) -> bool:
    return all(np.allclose(one, other, rtol=tolerance, atol=tolerance) for one, other in zip(ours, theirs))


def same_bits_on_all_ranks(arrays) -> bool:
    from horovod.common.objects import allgather_object

    return len(set(allgather_object(b"".join(np.asarray(array).tobytes() for array in arrays)))) == 1


def optimizers(keras) -> dict[str, Callable]:
    """Every family of optimizers that this Keras has."""
    module = keras.optimizers
    found = {
        "SGD": lambda: module.SGD(0.1),
        "momentum": lambda: module.SGD(0.05, momentum=0.9, nesterov=True),
        "Adam": lambda: module.Adam(0.01),
        "Adagrad": lambda: module.Adagrad(0.1),
        "RMSprop": lambda: module.RMSprop(0.01),
        "AdamW": lambda: module.AdamW(0.01, weight_decay=0.01),
        "Lion": lambda: module.Lion(0.01),
    }
    if not is_keras3(keras):
        legacy = module.legacy
        found |= {
            "legacy SGD": lambda: legacy.SGD(0.1),
            "legacy momentum": lambda: legacy.SGD(0.05, momentum=0.9),
            "legacy Adam": lambda: legacy.Adam(0.01),
            "legacy Adagrad": lambda: legacy.Adagrad(0.1),
            "legacy RMSprop": lambda: legacy.RMSprop(0.01),
        }
    return found
