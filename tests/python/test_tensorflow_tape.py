# SPDX-License-Identifier: Apache-2.0
"""DistributedGradientTape: what it reduces, what it leaves alone, and in which structure it gives gradients back."""

from __future__ import annotations

import numpy as np
import pytest
from ranks import in_one_start


def numbers():
    """Return this rank's number from 1 on, and the average of all."""
    import horovod.tensorflow as hvd

    return hvd.rank() + 1.0, (hvd.size() + 1) / 2


@pytest.mark.row("b2", "b16")
@in_one_start(3)
def test_tapes_that_have_finished_record_or_have_yet_to_begin():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    own, average = numbers()
    weights = tf.Variable([1.0, 2.0])

    def finished():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights * own)
        return hvd.DistributedGradientTape(tape).gradient(loss, weights)

    def begun_by_us():
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(weights * own)
        assert isinstance(tape, tf.GradientTape)
        return tape.gradient(loss, weights)

    def recording():
        with tf.GradientTape(persistent=True) as inner:
            loss = tf.reduce_sum(weights * own)
            tape = hvd.DistributedGradientTape(inner)
            gradient = tape.gradient(loss, weights)
        again = tape.gradient(loss, weights)
        tf.debugging.assert_equal(gradient, again)
        return again

    for function in (finished, begun_by_us, recording):
        assert np.all(function().numpy() == average)
        assert np.all(tf.function(function)().numpy() == average)
    tape = hvd.DistributedGradientTape(tf.GradientTape(persistent=True))
    with tape:
        tape.watch(weights)
        forgotten = weights * weights
        tape.reset()
        square = weights * weights
        with tape.stop_recording():
            hidden = weights * 2.0
    assert tape.watched_variables()[0] is weights
    assert tape.gradient(hidden, weights) is None
    assert tape.gradient(forgotten, weights) is None
    assert tape.jacobian(square, weights).shape == (2, 2)


@pytest.mark.row("b16")
@in_one_start(3)
def test_gradients_have_the_structure_of_their_sources():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    own, average = numbers()
    first, second, unused = tf.Variable(1.0), tf.Variable([2.0]), tf.Variable(3.0)
    watched = tf.constant([1.0, 1.0])
    with tf.GradientTape(persistent=True) as inner:
        inner.watch(watched)
        loss = own * (first + tf.reduce_sum(second) * 2.0 + tf.reduce_sum(watched) * 3.0)
    tape = hvd.DistributedGradientTape(inner)
    found = tape.gradient(loss, {"a": first, "b": [second, (unused, watched)]})
    assert found["a"].numpy() == average
    assert found["b"][0].numpy() == [2 * average]
    assert found["b"][1][0] is None
    assert found["b"][1][1].numpy().tolist() == [3 * average] * 2
    assert tape.gradient(loss, unused) is None
    zero = tape.gradient(loss, [unused], unconnected_gradients=tf.UnconnectedGradients.ZERO)
    assert zero[0].numpy() == 0.0
    assert tape.gradient(loss, unused, None, tf.UnconnectedGradients.ZERO).numpy() == 0.0
    assert tape.gradient(loss, first, output_gradients=tf.constant(10.0)).numpy() == 10 * average
    assert tape.gradient([loss, loss], first).numpy() == 2 * average


@pytest.mark.row("b3", "b14", "b18")
@in_one_start(3)
def test_variables_of_keras_and_sparse_gradients():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    own, average = numbers()
    layers = [tf.keras.layers.Embedding(5, 2), tf.keras.layers.Dense(1, use_bias=False)]
    for _ in range(hvd.rank()):  # so that Keras numbers the layers differently
        tf.keras.layers.Dense(3).build((None, 2))
    model = tf.keras.Sequential(layers)
    model(tf.zeros([1, 1], tf.int32))
    for variable in model.trainable_variables:
        variable.assign(tf.ones(variable.shape))
    ids = tf.constant([[hvd.rank()], [4]])

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(ids)) * own
        return hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)

    table, kernel = step()
    assert isinstance(table, tf.IndexedSlices)
    dense = tf.convert_to_tensor(table).numpy()
    assert np.allclose(dense[:3, 0], [1 / 3, 2 / 3, 1.0])
    assert np.all(dense[4] == 2.0)
    assert np.allclose(kernel.numpy(), 2 * average)


@pytest.mark.row("b15", "k14")
@in_one_start(3)
def test_options():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    own, average = numbers()
    variables = [tf.Variable(np.ones(n, "float32")) for n in (1, 2, 3, 4)]
    half = tf.Variable(np.ones(2, "float16"))

    def gradients(**more):
        def step():
            with tf.GradientTape() as tape:
                loss = own * tf.add_n([tf.reduce_sum(one) for one in variables])
                loss += tf.cast(tf.reduce_sum(half), tf.float32) * own
            return hvd.DistributedGradientTape(tape, **more).gradient(loss, [*variables, half])

        eager, graph = step(), tf.function(step)()
        for one, other in zip(eager, graph):
            assert one.dtype == other.dtype
            assert np.array_equal(one.numpy(), other.numpy())
        assert eager[-1].dtype == tf.float16
        assert len({float(value) for one in eager for value in one.numpy()}) == 1
        return float(eager[0][0])

    with pytest.deprecated_call():
        assert gradients(num_groups=2) == average
    assert gradients() == average
    assert gradients(op=hvd.Sum) == 3 * average
    assert gradients(op=hvd.Max) == 3.0
    assert gradients(compression=hvd.Compression.fp16) == average
    assert gradients(compression=hvd.Compression.bf16) == average
    assert gradients(gradient_predivide_factor=2.0) == average
    for groups in (1, 3, 100, [], [variables[:2], [half]], [[variables[3], variables[0]]]):
        assert gradients(groups=groups) == average


@pytest.mark.row("b15", "k9")
@in_one_start(3)
def test_process_sets():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.shutdown()
    sets = [hvd.ProcessSet([0, 2]), hvd.ProcessSet([1])]
    hvd.init(process_sets=sets)
    own, _ = numbers()
    weights = tf.Variable([1.0])
    for chosen in sets:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights * own)
        found = hvd.DistributedGradientTape(tape, process_set=chosen).gradient(loss, weights).numpy()
        assert found == (2.0 if chosen.included() else own)


@pytest.mark.row("g1", "g5", "g6", "g9")
@in_one_start(3)
def test_sources_of_one_rank():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    own, average = numbers()
    shared = tf.Variable(1.0)
    # Each rank has others, in number and in shape.
    mine = [tf.Variable(np.ones(hvd.rank() + 2, "float32")) for _ in range(hvd.rank() + 1)]

    def pair(**more):
        with tf.GradientTape(persistent=True) as tape:
            loss = own * (shared + tf.add_n([tf.reduce_sum(one) for one in mine]))
        tape = hvd.DistributedGradientTape(tape, **more)
        for one in mine:
            tape.register_local_source(one)
        return tape, loss

    tape, loss = pair()
    found = tape.gradient(loss, [*mine, shared])
    assert found[-1].numpy() == average
    assert all(np.allclose(one.numpy(), own / 3) for one in found[:-1])
    local, others = tape.get_local_and_global_gradients(loss, [shared, *mine])
    assert [one for one, _ in others] == [shared]
    assert others[0][1].numpy() == average
    assert all(one is other for (one, _), other in zip(local, mine))
    tape, loss = pair(scale_local_gradients=False)
    assert all(np.all(one.numpy() == own) for one in tape.gradient(loss, mine))


@pytest.mark.row("g1", "g4", "g7", "g9")
@in_one_start(3)
def test_layers_of_one_rank():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    own, average = numbers()
    local, shared = tf.keras.layers.Embedding(4, hvd.rank() + 1), tf.keras.layers.Dense(1, use_bias=False)
    tape = hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=local, op=hvd.Sum)
    with tape:  # the layer is built in here
        features = tf.reduce_sum(local(tf.constant([1, 1])), axis=1, keepdims=True) * 0.0 + 1.0
        loss = own * tf.reduce_sum(shared(features))
        loss += own * tf.reduce_sum(local(tf.constant([2])))
    rows, kernel = tape.gradient(loss, [local.trainable_variables[0], shared.trainable_variables[0]])
    assert isinstance(rows, tf.IndexedSlices)
    assert np.allclose(tf.convert_to_tensor(rows).numpy()[2], own / 3)
    assert kernel.numpy() == 2 * 3 * average
    for wrong in ("a layer", [local, tf.Variable(1.0)]):
        with pytest.raises(ValueError, match="local_layers"):
            hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=wrong)


@pytest.mark.row("b18")
@in_one_start(3)
def test_many_gradients():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    own, average = numbers()
    variables = [tf.Variable(tf.ones([n % 7 + 1])) for n in range(60)]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = own * tf.add_n([tf.reduce_sum(one) * (i + 1.0) for i, one in enumerate(variables)])
        return hvd.DistributedGradientTape(tape).gradient(loss, variables)

    for _ in range(20):
        for i, one in enumerate(step()):
            assert np.all(one.numpy() == average * (i + 1))


@pytest.mark.row("b18")
@in_one_start(3)
def test_names_do_not_count_traces():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    own, average = numbers()
    weights = tf.Variable(1.0)

    @tf.function
    def step(scale):
        with tf.GradientTape() as tape:
            loss = weights * own * scale
        return hvd.DistributedGradientTape(tape).gradient(loss, weights)

    for _ in range(hvd.rank() + 1):  # every rank has traced it more often than the one before

        @tf.function
        def other():
            return tf.constant(1.0)

        other()
        step.get_concrete_function(float(_) + 10.0)
    assert step(1.0).numpy() == average
    assert step(2.0).numpy() == 2 * average


@pytest.mark.row("b2", "b17")
@in_one_start(3)
def test_loops_branches_and_functions_in_functions():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    own, average = numbers()
    first, second = tf.Variable([0.0, 0.0]), tf.Variable(0.0)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = own * (tf.reduce_sum(first) + second)
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, [first, second])
        for variable, gradient in zip((first, second), gradients):
            variable.assign_sub(gradient)

    @tf.function
    def steps(count, once_more):
        for _ in tf.range(count):
            step()
        step()
        step()
        if once_more:
            step()

    steps(tf.constant(5), tf.constant(True))
    assert first.numpy().tolist() == [-8 * average] * 2
    steps(tf.constant(1), tf.constant(False))
    assert second.numpy() == -11 * average
