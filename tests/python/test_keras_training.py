# SPDX-License-Identifier: Apache-2.0
"""Ranks that `fit` shares of batches get the weights of one process that fits whole batches."""

import numpy as np
import pytest
from keras_training import (
    close,
    data,
    fit,
    is_keras3,
    modules,
    network,
    optimizers,
    same_bits_on_all_ranks,
    share,
    shared,
    shared_by_hand,
    whole,
    with_each_keras,
)
from ranks import on_ranks


@with_each_keras("b13", "c17", "f17", ranks=(2, 3))
def test_every_optimizer():
    keras, hvd = modules()
    for name, make in optimizers(keras).items():
        weights = shared(keras, hvd, hvd.DistributedOptimizer(make()))
        assert close(weights, whole(keras, make())), name
        assert same_bits_on_all_ranks(weights), name


@with_each_keras("c17")
def test_without_the_wrapper_ranks_go_their_own_ways():
    keras, hvd = modules()
    weights = shared(keras, hvd, keras.optimizers.SGD(0.1))
    assert not close(weights, whole(keras, keras.optimizers.SGD(0.1)), 1e-3)
    assert not same_bits_on_all_ranks(weights)


@with_each_keras("c1", "c2")
def test_the_wrapper_of_horovod_tensorflow_and_its_arguments():
    keras, _ = modules()
    import horovod.tensorflow as hvd

    wrapped = hvd.DistributedOptimizer(
        keras.optimizers.Adam(0.01), backward_passes_per_step=1, average_aggregated_gradients=True
    )
    assert isinstance(wrapped, keras.optimizers.Adam)
    options = {} if is_keras3(keras) else {"experimental_run_tf_function": False}
    weights = shared(keras, hvd, wrapped, **options)
    assert close(weights, whole(keras, keras.optimizers.Adam(0.01)))


@with_each_keras("b15", "k14")
def test_every_option_of_the_reduction():
    keras, hvd = modules()
    expected = whole(keras, keras.optimizers.SGD(0.1))
    groups = (
        {"groups": 2},
        {"num_groups": 3},
        {"gradient_predivide_factor": 2.0},
        {"sparse_as_dense": True},
        {"name": "x"},
    )
    for options in groups:
        weights = shared_by_hand(keras, hvd, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **options))
        assert close(weights, expected), options
    summed = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 / hvd.size()), op=hvd.Sum)
    assert close(shared_by_hand(keras, hvd, summed), expected)
    for small in (hvd.Compression.fp16, hvd.Compression.bf16):
        weights = shared_by_hand(keras, hvd, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), compression=small))
        assert close(weights, expected, 1e-1)
        assert not close(weights, expected)
        assert same_bits_on_all_ranks(weights)
    model = network(keras)
    lists = [model.trainable_variables[:2], model.trainable_variables[2:3]]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), groups=lists)
    assert close(fit(keras, model, optimizer, share(data(), hvd.rank(), hvd.size()), size=hvd.size()), expected)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), groups=2, compression=hvd.Compression.bf16)
    assert close(shared(keras, hvd, optimizer), expected, 1e-1)


@with_each_keras("c11", "c17")
def test_every_way_to_run_steps():
    keras, hvd = modules()

    def make(**options):
        return hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, **options))

    expected = whole(keras, keras.optimizers.SGD(0.1))
    assert close(shared(keras, hvd, make(), steps_per_execution=2), expected)
    assert close(shared(keras, hvd, make(), run_eagerly=True), expected)
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    weights = shared(keras, hvd, hvd.DistributedOptimizer(keras.optimizers.SGD(schedule)))
    assert close(weights, whole(keras, keras.optimizers.SGD(schedule)))
    batch = share(data(), hvd.rank(), hvd.size())
    model = network(keras)
    model.compile(make(), "mse")
    one = network(keras)
    one.compile(keras.optimizers.SGD(0.1), "mse")
    wanted = np.eye(3)
    for _ in range(3):
        model.train_on_batch(batch[0], wanted[batch[1]])
        one.train_on_batch(data()[0], wanted[data()[1]])
    assert close(model.get_weights(), one.get_weights())


@with_each_keras("c17")
def test_clipping_weight_decay_and_averages_see_the_reduced_gradient():
    keras, hvd = modules()
    cases = [{"clipnorm": 0.05}, {"global_clipnorm": 0.05}, {"clipvalue": 0.01}]
    cases.append({"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 3, "weight_decay": 0.1})
    if is_keras3(keras):
        cases.append({"gradient_accumulation_steps": 2})
    makers = {str(options): lambda options=options: keras.optimizers.SGD(0.1, **options) for options in cases}
    if not is_keras3(keras):
        makers["legacy"] = lambda: keras.optimizers.legacy.SGD(0.1, clipnorm=0.05)
    for name, make in makers.items():
        train = shared if "clip" in name else shared_by_hand
        assert close(train(keras, hvd, hvd.DistributedOptimizer(make())), whole(keras, make())), name


@with_each_keras("b19", "c17")
def test_custom_train_step_subclassed_model_and_sparse_gradients():
    keras, hvd = modules()
    import tensorflow as tf

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.table = keras.layers.Embedding(7, 4, embeddings_initializer=keras.initializers.Constant(0.5))
            self.out = keras.layers.Dense(3, kernel_initializer=keras.initializers.Constant(0.1))
            self.unused = self.add_weight(name="unused", shape=[2], initializer="zeros")

        def call(self, ids):
            return self.out(tf.reduce_mean(self.table(ids), axis=1))

        def train_step(self, batch):
            ids, wanted = batch
            with tf.GradientTape() as tape:
                error = tf.reduce_mean((self(ids, training=True) - tf.one_hot(wanted, 3, dtype="float64")) ** 2)
            variables = self.trainable_variables
            gradients = tape.gradient(error, variables)
            assert any(isinstance(one, tf.IndexedSlices) for one in gradients)
            assert any(one is None for one in gradients)
            self.optimizer.apply_gradients(zip(gradients, variables))
            return {"error": error}

    random = np.random.default_rng(5)
    everything = random.integers(0, 7, (48, 2)), data()[1]
    # Adam of Keras 3 squares rows one by one where several are of the same place, so sparse and dense are not the same.
    for make, dense in ((keras.optimizers.Adam, False), (keras.optimizers.SGD, False), (keras.optimizers.SGD, True)):
        wrapped = hvd.DistributedOptimizer(make(0.01), sparse_as_dense=dense)
        ours = fit(keras, Model(), wrapped, share(everything, hvd.rank(), hvd.size()), size=hvd.size())
        assert close(ours, fit(keras, Model(), make(0.01), everything, run_eagerly=True)), (make, dense)
        assert same_bits_on_all_ranks(ours)


def every_batch_twice(array, rows):
    return np.repeat(array.reshape(-1, rows, *array.shape[1:]), 2, axis=0).reshape(-1, *array.shape[1:])


@with_each_keras("k16")
def test_several_backward_passes_per_step():
    keras, hvd = modules()
    makers = [keras.optimizers.SGD]
    if not is_keras3(keras):
        makers.append(keras.optimizers.legacy.SGD)
    for make in makers:
        for average in (False, True):
            # Two equal passes make twice the gradient of one, or its own as their average.
            factor = 1.0 if average else 0.5
            wrapped = hvd.DistributedOptimizer(
                make(0.1 * factor), backward_passes_per_step=2, average_aggregated_gradients=average
            )
            model = network(keras)
            batch = share(data(), hvd.rank(), hvd.size())
            rows = 12 // hvd.size()
            weights = fit(keras, model, wrapped, [every_batch_twice(part, rows) for part in batch], size=hvd.size())
            assert close(weights, whole(keras, make(0.1))), (make, average)
            assert int(wrapped._agg_helper.counter.numpy()) == 0
            assert int(np.asarray(model.optimizer.iterations)) == 16
            model.fit(batch[0][:rows], batch[1][:rows], batch_size=rows, verbose=0)
            assert int(wrapped._agg_helper.counter.numpy()) == 1
            assert close(model.get_weights(), weights, 0.0)


@with_each_keras("c12", "c13", "c14")
def test_pictures_from_a_file_of_each_rank():
    import os
    import tempfile

    keras, hvd = modules()
    random = np.random.default_rng(6)
    pictures, labels = random.normal(size=(48, 8, 8, 3)), random.integers(0, 10, 48)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"pictures-{hvd.rank()}.npz")
        np.savez(path, pictures=pictures, labels=labels)
        with np.load(path) as file:
            everything = file["pictures"], file["labels"]

    def model():
        keras.utils.set_random_seed(2)
        layers = [keras.Input([8, 8, 3]), keras.layers.Conv2D(4, 3), keras.layers.Flatten(), keras.layers.Dense(10)]
        return keras.Sequential(layers)

    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.001))
    weights = fit(keras, model(), optimizer, share(everything, hvd.rank(), hvd.size()), size=hvd.size())
    assert close(weights, fit(keras, model(), keras.optimizers.Adam(0.001), everything, run_eagerly=True))


@pytest.mark.row("c15", "f15")
@on_ranks(2, env={"HOROVOD_COMPAT": "tf1", "TF_CPP_MIN_LOG_LEVEL": "2"})
def test_sessions_of_keras_2():
    import horovod.tensorflow
    import horovod.tensorflow.keras as hvd
    import keras as keras_then
    import tensorflow as tf
    import tf_keras as keras

    keras.backend.set_floatx("float64")
    train = tf.train
    assert keras_then.layers is tf.keras.layers
    assert not tf.executing_eagerly()

    # Libraries see today's names, and without Keras 2 there are no layers.
    assert not eval("hasattr(tf, 'Session')", {"__name__": "keras.models", "tf": tf})
    assert hasattr(tf, "Session")
    from horovod.compat import tf1_keras

    v1 = tf.compat.v1
    kept = v1.layers, v1.nn.rnn_cell
    tf1_keras.explain_what_is_missing(v1)
    for use in (lambda: tf.layers.dense, lambda: v1.layers.dense, lambda: tf.nn.rnn_cell.LSTMCell):
        with pytest.raises(AttributeError, match=r" needs Keras 2, which is not installed: pip install tf_keras~="):
            use()
    v1.layers, v1.nn.rnn_cell = kept
    with pytest.raises(AttributeError, match=r"no tf.contrib any more; python -m horovod.compat SCRIPT"):
        tf.contrib  # noqa: B018

    def inside_keras(optimizer):
        return keras_then.optimizers.TFOptimizer(horovod.tensorflow.DistributedOptimizer(optimizer))

    cases = [
        (lambda: train.MomentumOptimizer(0.1, 0.5), horovod.tensorflow.DistributedOptimizer),
        (lambda: train.MomentumOptimizer(0.1, 0.5), inside_keras),
        (lambda: keras.optimizers.legacy.Adam(0.1), hvd.DistributedOptimizer),
    ]
    for make, wrap in cases:
        expected = fit(keras, network(keras), make(), data())
        mine = share(data(), hvd.rank(), hvd.size())
        assert close(fit(keras, network(keras), wrap(make()), mine, size=hvd.size()), expected)

        # One batch, and the root's weights afterwards.
        model = network(keras)
        model.set_weights([one * (hvd.rank() + 1.0) for one in model.get_weights()])
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(1)
        fit(keras, model, wrap(make()), [part[:6] for part in mine], size=hvd.size(), epochs=1, callbacks=[callback])
        assert same_bits_on_all_ranks(model.get_weights())
    schedule = hvd.callbacks.LearningRateWarmupCallback(0.4, warmup_epochs=1)
    model = network(keras)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.legacy.SGD(0.1, momentum=0.9))
    fit(keras, model, optimizer, mine, size=hvd.size(), callbacks=[schedule])
    assert np.isclose(keras.backend.get_value(model.optimizer.learning_rate), 0.4)
    assert np.isclose(keras.backend.get_value(model.optimizer.momentum), 0.9)
    assert np.allclose(hvd.allreduce([float(hvd.rank())]), 0.5)
    hvd.broadcast_global_variables(0)
