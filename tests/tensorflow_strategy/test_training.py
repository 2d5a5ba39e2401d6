# SPDX-License-Identifier: Apache-2.0
"""Ranks that share the batches get the weights that one process gets."""

from __future__ import annotations

import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from both import with_each_strategy  # noqa: E402
from keras_training import (  # noqa: E402
    BATCH,
    LEGACY,
    by_hand,
    close,
    data,
    is_keras3,
    loss,
    modules,
    network,
    same_bits_on_all_ranks,
    share,
)
from ranks import in_one_start  # noqa: E402

FLOAT64, FLOAT32 = 1e-9, 5e-6


def batches(arrays, rank, size):
    rows = BATCH // size
    mine = share(arrays, rank, size)
    return [tuple(array[first : first + rows] for array in mine) for first in range(0, len(mine[0]), rows)] * 2


def under(strategy, model, apply, variables):
    """Train on this rank's share in a loop of our own; `apply(pairs)` applies gradients."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    objective = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    @tf.function
    def step(inputs, labels):
        def replica(inputs, labels):
            with tf.GradientTape() as tape:
                each = objective(labels, model(inputs, training=True))
                error = tf.nn.compute_average_loss(each, global_batch_size=BATCH)
            apply(zip(tape.gradient(error, variables), variables))
            return error

        return strategy.reduce("SUM", strategy.run(replica, (inputs, labels)))

    for inputs, labels in batches(data(), hvd.rank(), hvd.size()):
        step(tf.constant(inputs), tf.constant(labels))
    return model.get_weights()


def check(ours, theirs, tolerance):
    assert {one.dtype for one in ours} == {np.dtype("float64" if tolerance == FLOAT64 else "float32")}
    assert same_bits_on_all_ranks(ours)
    assert close(ours, theirs, tolerance)


def in_float32(keras):
    keras.backend.set_floatx("float32")
    keras.mixed_precision.set_global_policy("float32")


def v1_optimizers():
    import tensorflow as tf

    v1 = tf.compat.v1.train
    return {
        "SGD": lambda: v1.GradientDescentOptimizer(0.1),
        "Momentum": lambda: v1.MomentumOptimizer(0.05, 0.9),
        "Adam": lambda: v1.AdamOptimizer(0.01),
    }


def keras_optimizers(keras):
    module = keras.optimizers
    return {
        "SGD": lambda: module.SGD(0.05, momentum=0.9, nesterov=True),
        "Adam": lambda: module.Adam(0.01),
        "AdamW": lambda: module.AdamW(0.01, weight_decay=0.01),
    }


def of_one_process(keras, make):
    """What one process gets with an optimizer of tf.compat.v1."""
    import tensorflow as tf

    model, optimizer = network(keras), make()
    for inputs, labels in batches(data(), 0, 1):
        with tf.GradientTape() as tape:
            error = loss(keras)(labels, model(inputs, training=True))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(error, variables), (one.value for one in variables)))
    return model.get_weights()


@pytest.mark.row("h1", "h2", "h3", "h5", "h14")
@in_one_start(2, 3)
@with_each_strategy
def test_keras(make):
    keras, _ = modules()
    strategy = make()
    for build in keras_optimizers(keras).values():
        with strategy.scope():
            model, optimizer = network(keras), build()
        ours = under(strategy, model, optimizer.apply_gradients, model.trainable_variables)
        check(ours, by_hand(keras, build(), data()), FLOAT64)


@pytest.mark.row("h5")
@in_one_start(2, 3)
@with_each_strategy
def test_v1_optimizers(make):
    keras, _ = modules()
    strategy = make()
    for build in v1_optimizers().values():
        with strategy.scope():
            model, optimizer = network(keras), build()
        variables = [one.value for one in model.trainable_variables]
        ours = under(strategy, model, optimizer.apply_gradients, variables)
        check(ours, of_one_process(keras, build), FLOAT64)


@pytest.mark.row("h5")
@in_one_start(2)
@with_each_strategy
def test_a_v1_optimizer_in_a_session(make):
    import horovod.tensorflow as hvd
    import tensorflow as tf

    v1 = tf.compat.v1
    inputs, labels = data()

    def train(strategy, rank, size):
        with tf.Graph().as_default(), strategy.scope():
            weights = v1.get_variable("weights", initializer=np.full([4, 3], 0.1 * (1 + hvd.rank() * (size > 1))))
            rows, wanted = (v1.placeholder(kind, [None, *shape]) for kind, shape in ((tf.float64, [4]), (tf.int64, [])))
            step = v1.train.get_or_create_global_step()

            def replica():
                each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=rows @ weights)
                optimizer = v1.train.AdamOptimizer(0.01)
                return optimizer.minimize(tf.reduce_sum(each) / BATCH, global_step=step)

            operation = strategy.group(strategy.run(replica))
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                for batch in batches((inputs, labels), rank, size):
                    session.run(operation, dict(zip((rows, wanted), batch)))
                return [session.run(weights), session.run(step)]

    ours = train(make(), hvd.rank(), hvd.size())
    theirs = train(tf.distribute.get_strategy(), 0, 1)
    assert ours.pop() == theirs.pop()  # the global step
    check(ours, theirs, FLOAT64)


@pytest.mark.row("h5")
@in_one_start(2, 3)
def test_float32():
    from horovod.tensorflow.strategy import HorovodStrategy

    keras, _ = modules()
    strategy = HorovodStrategy()
    in_float32(keras)
    for build in keras_optimizers(keras).values():
        with strategy.scope():
            model, optimizer = network(keras), build()
        ours = under(strategy, model, optimizer.apply_gradients, model.trainable_variables)
        check(ours, by_hand(keras, build(), data()), FLOAT32)
    for build in v1_optimizers().values():
        with strategy.scope():
            model, optimizer = network(keras), build()
        ours = under(strategy, model, optimizer.apply_gradients, [one.value for one in model.trainable_variables])
        check(ours, of_one_process(keras, build), FLOAT32)


def fit_under_a_strategy(make):
    """`fit` on the whole batches, which the strategy shares out."""
    import horovod.tensorflow as hvd

    keras, _ = modules()
    strategy = make()
    with strategy.scope():
        model = network(keras)
        model.compile(keras.optimizers.Adam(0.01), loss(keras), metrics=["accuracy"])
    history = model.fit(*data(), batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history
    check(model.get_weights(), by_hand(keras, keras.optimizers.Adam(0.01), data()), FLOAT64)
    assert len({str(one) for one in hvd.allgather_object(history)}) == 1


@pytest.mark.row("h3", "h4", "h5")
@in_one_start(2)
@with_each_strategy
def test_fit(make):
    fit_under_a_strategy(make)


@pytest.mark.row("h5")
@in_one_start(2, 3, env=LEGACY)
def test_tf_keras():
    from horovod.tensorflow.strategy import HorovodStrategy

    keras, _ = modules()
    assert not is_keras3(keras)
    strategy = HorovodStrategy()
    module = keras.optimizers
    for tolerance in (FLOAT64, FLOAT32):
        if tolerance == FLOAT32:
            in_float32(keras)
        for build in [*keras_optimizers(keras).values(), lambda: module.legacy.Adam(0.01)]:
            with strategy.scope():
                model, optimizer = network(keras), build()
            ours = under(strategy, model, optimizer.apply_gradients, model.trainable_variables)
            check(ours, by_hand(keras, build(), data()), tolerance)


@pytest.mark.row("h5")
@in_one_start(2, env=LEGACY)
@with_each_strategy
def test_fit_of_tf_keras(make):
    fit_under_a_strategy(make)
