# SPDX-License-Identifier: Apache-2.0
"""Ranks that train on shares of a batch get the weights of one process that trains on the whole batch."""

from __future__ import annotations

import numpy as np
import pytest
from ranks import in_one_start

ROWS, STEPS = 12, 6  # shares of 2 and 3 ranks are equal


def data():
    random = np.random.default_rng(7)
    ids = random.integers(0, 6, ROWS)
    return ids, random.normal(size=(ROWS, 4)), random.normal(size=(ROWS, 3))


def share(arrays):
    import horovod.tensorflow as hvd

    rows = ROWS // hvd.size()
    return tuple(array[hvd.rank() * rows : (hvd.rank() + 1) * rows] for array in arrays)


def initial():
    random = np.random.default_rng(8)
    return [random.normal(size=shape) * 0.5 for shape in ((6, 4), (4, 3), (3,))]


def loss_of(variables, batch):
    import tensorflow as tf

    table, matrix, bias = variables
    ids, features, wanted = batch
    scores = tf.matmul(tf.gather(table, ids) + features, matrix) + bias
    return tf.reduce_mean(tf.math.squared_difference(scores, wanted))


def v1_optimizers():
    import tensorflow as tf

    train = tf.compat.v1.train
    return {
        "sgd": lambda: train.GradientDescentOptimizer(0.1),
        "momentum": lambda: train.MomentumOptimizer(0.05, 0.9),
        "adam": lambda: train.AdamOptimizer(0.01),
        "adagrad": lambda: train.AdagradOptimizer(0.1),
        "rmsprop": lambda: train.RMSPropOptimizer(0.01),
    }


def train_v1(optimizer_of, batch, dtype="float64"):
    """Train in a v1 graph and return the weights."""
    import tensorflow as tf

    batch = (batch[0], batch[1].astype(dtype), batch[2].astype(dtype))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [
            tf.compat.v1.get_variable(f"v{i}", initializer=value.astype(dtype)) for i, value in enumerate(initial())
        ]
        unused = tf.compat.v1.get_variable("unused", initializer=np.ones(2, dtype))
        step = tf.compat.v1.train.create_global_step()
        pairs = (optimizer := optimizer_of()).compute_gradients(loss_of(variables, batch), [*variables, unused])
        assert pairs[-1][0] is None
        assert isinstance(pairs[0][0], tf.IndexedSlices)
        train = optimizer.apply_gradients(pairs, global_step=step)
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(STEPS):
            session.run(train)
        assert session.run(step) == STEPS
        return session.run(variables)


def close(ours, theirs, tolerance=1e-10):
    return all(np.allclose(one, other, rtol=tolerance, atol=tolerance) for one, other in zip(ours, theirs))


def same_on_all_ranks(arrays):
    import horovod.tensorflow as hvd

    return len(set(hvd.allgather_object(b"".join(array.tobytes() for array in arrays)))) == 1


@pytest.mark.row("a3", "a4", "a13", "a15", "a16", "a19", "f17")
@in_one_start(2, 3)
def test_v1_optimizers():
    import horovod.tensorflow as hvd

    for name, make in v1_optimizers().items():
        whole = train_v1(make, data())
        shares = train_v1(lambda make=make: hvd.DistributedOptimizer(make()), share(data()))
        assert close(whole, shares), name
        assert same_on_all_ranks(shares), name
        assert not close(whole, train_v1(make, share(data())), 1e-4), f"{name} does not need the reduction"


@pytest.mark.row("a4", "k14")
@in_one_start(2, 3)
def test_compression():
    import horovod.tensorflow as hvd

    make = v1_optimizers()["sgd"]
    for compression, tolerance in ((hvd.Compression.fp16, 2e-3), (hvd.Compression.bf16, 2e-2)):
        whole = train_v1(make, data(), "float32")
        shares = train_v1(
            lambda compression=compression: hvd.DistributedOptimizer(make(), compression=compression),
            share(data()),
            "float32",
        )
        assert shares[0].dtype == np.float32
        assert close(whole, shares, tolerance)
        assert not close(whole, shares, 1e-6), "nothing was compressed"
        assert same_on_all_ranks(shares)


@pytest.mark.row("a5")
@in_one_start(2, 3)
def test_v1_optimizers_without_a_graph():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    def trained(optimizer, batch):
        variables = [tf.Variable(value) for value in initial()]
        for _ in range(STEPS):
            optimizer.minimize(lambda: loss_of(variables, batch), var_list=variables)
        return [variable.numpy() for variable in variables]

    make = v1_optimizers()["momentum"]
    whole, shares = trained(make(), data()), trained(hvd.DistributedOptimizer(make()), share(data()))
    assert close(whole, shares)
    assert same_on_all_ranks(shares)


@pytest.mark.row("b2", "b4", "b13", "b14", "b15", "f17")
@in_one_start(2, 3)
def test_tapes():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    def trained(batch, wrap, decorate, dense=False):
        variables = [tf.Variable(value) for value in initial()]
        optimizer = tf.optimizers.Adam(0.01)
        optimizer.build(variables)

        @decorate
        def step():
            with tf.GradientTape() as tape:
                loss = loss_of(variables, batch)
            gradients = wrap(tape).gradient(loss, variables)
            assert isinstance(gradients[0], tf.Tensor if wrap is wrappers["dense"] else tf.IndexedSlices)
            if dense:
                gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
            optimizer.apply_gradients(zip(gradients, variables))
            return loss

        for _ in range(STEPS):
            step()
        return [variable.numpy() for variable in variables]

    def plain(tape):
        return tape

    wrappers = {
        "plain": hvd.DistributedGradientTape,
        "dense": lambda tape: hvd.DistributedGradientTape(tape, sparse_as_dense=True),
        "in two steps": lambda tape: hvd.DistributedGradientTape(tape, gradient_predivide_factor=float(hvd.size())),
        "in groups": lambda tape: hvd.DistributedGradientTape(tape, groups=2),
    }
    for decorate in (tf.function, lambda function: function):
        # Adam of Keras 3 does not square sums of rows that come twice, but rows: sparse and dense differ also alone.
        whole = {dense: trained(data(), plain, decorate, dense) for dense in (False, True)}
        for name, wrap in wrappers.items():
            dense = name == "dense"
            shares = trained(share(data()), wrap, decorate, dense)
            # Keras keeps the moments in float32.
            assert close(whole[dense], shares, 1e-5), name
            assert same_on_all_ranks(shares)
        assert not close(whole[False], trained(share(data()), plain, decorate), 1e-3)


@pytest.mark.row("b19", "c1", "c3")
@in_one_start(2, 3)
def test_an_optimizer_of_keras_with_a_plain_tape():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    def trained(batch, wrap):
        variables = [tf.Variable(value) for value in initial()]
        optimizer = wrap(tf.keras.optimizers.SGD(0.05, momentum=0.9))
        optimizer.build(variables)

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                loss = loss_of(variables, batch)
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

        for _ in range(STEPS):
            step()
        return [variable.numpy() for variable in variables]

    whole = trained(data(), lambda optimizer: optimizer)
    shares = trained(share(data()), hvd.DistributedOptimizer)
    assert close(whole, shares, 1e-5)
    assert same_on_all_ranks(shares)
    assert not close(whole, trained(share(data()), lambda optimizer: optimizer), 1e-3)
    with pytest.raises(ValueError, match="groups"):
        hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.05), groups=-1)
    assert hvd.keras.callbacks.BroadcastGlobalVariablesCallback(0) is not None
