# SPDX-License-Identifier: Apache-2.0
"""The bridges to Keras 3: lines for Keras 2 work, and programs of today see Keras's own."""

import copy
import importlib
import inspect
import pathlib
import pickle
import runpy
import sys
import warnings

import numpy as np
import pytest
from ranks import in_one_start, on_ranks

GENERATOR = pathlib.Path(__file__).resolve().parents[2] / "tools" / "gen_compat_names.py"


def modules():
    import horovod.tensorflow.keras as hvd
    import keras

    return keras, hvd


def notes_of(function):
    """Return the function's result and what the bridges said meanwhile."""
    from horovod.compat import notes

    notes._said.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function()
    return result, [str(one.message) for one in caught if issubclass(one.category, notes.CompatNote)]


def network(keras, optimizer, **options):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **options)
    return model


def data():
    features = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")
    return features, features.sum(axis=1, keepdims=True)


@pytest.mark.row("b5", "b6", "b7", "b12")
@in_one_start(2)
def test_an_old_loop_with_a_tape():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    tf.keras.utils.set_random_seed(hvd.rank())
    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    opt = tf.optimizers.Adam(0.01 * hvd.size())
    loss = tf.losses.MeanSquaredError()

    @tf.function
    def one(rows, spreads):
        with tf.GradientTape() as recorded:
            error = loss(tf.ones([8, 2]), model(rows))
        weights = model.trainable_variables
        opt.apply_gradients(zip(hvd.DistributedGradientTape(recorded).gradient(error, weights), weights))
        if spreads:
            for some in (model.variables, opt.variables()):
                hvd.broadcast_variables(some, root_rank=0)

    for step in range(3):
        one(tf.random.normal([8, 4], seed=step), step == 0)
    everything = [np.asarray(one).tolist() for one in [*model.variables, *opt.variables()]]
    assert hvd.allgather_object(everything) == [everything] * hvd.size()


def in_graph(opt):
    """Return what a tf.function sees of the optimizer's variables."""
    import tensorflow as tf

    seen = []

    @tf.function
    def function():
        seen.append(type(opt.variables))
        for some in (opt.variables, opt.variables()):
            seen.append(len(some))

    function()
    return seen


@pytest.mark.row("b6")
@in_one_start(2)
def test_variables_are_keras_own_list_unless_they_are_called():
    keras, _ = modules()
    for opt in (keras.optimizers.Adam(), keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.1))):
        opt.build([keras.Variable([1.0])])
        assert type(opt.variables) is list
        assert type(getattr(opt, "variables")) is list  # noqa: B009
        called = opt.variables()
        assert type(called) is list
        assert [id(one) for one in called] == [id(one) for one in opt.variables]
        assert in_graph(opt) == [list, len(called), len(called)]
    assert "variables" not in vars(opt)
    assert isinstance(type(opt).variables, property)


@pytest.mark.row("c2")
@in_one_start(2)
def test_compile_drops_the_old_keyword_with_one_note():
    keras, hvd = modules()
    (model, again), said = notes_of(
        lambda: [
            network(keras, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), experimental_run_tf_function=False)
            for _ in range(2)
        ]
    )
    assert said == (["Keras 3 has no experimental_run_tf_function: leave it out of compile(...)"] * (hvd.rank() == 0))
    model.fit(*data(), epochs=1, verbose=0)
    again.fit(*data(), epochs=1, verbose=0)
    assert all((a == b).all() for a, b in zip(model.get_weights(), again.get_weights()))


@in_one_start(2)
def test_compile_and_fit_of_today_are_keras_own():
    keras, _ = modules()
    assert "experimental_run_tf_function" not in inspect.signature(keras.Model.compile).parameters
    assert "workers" not in inspect.signature(keras.Model.fit).parameters
    with pytest.raises(TypeError, match="unexpected keyword argument 'metric'"):
        network(keras, "sgd", metric=[])
    model = network(keras, "sgd", metrics=["mae"])
    with pytest.raises(TypeError, match="unexpected keyword argument 'epoch'"):
        model.fit(*data(), epoch=3)
    # Keras saves the arguments of its own compile, and compares it with that of the model's class.
    assert model.get_compile_config()["metrics"] == ["mae"]
    again = keras.Sequential.from_config(model.get_config())
    again.compile_from_config(model.get_compile_config())
    assert type(again.optimizer) is keras.optimizers.SGD
    _, said = notes_of(lambda: (network(keras, "sgd").fit(*data(), verbose=0), keras.optimizers.SGD(0.1)))
    assert said == []


@pytest.mark.row("c7", "c19")
@in_one_start(2)
def test_lr():
    keras, hvd = modules()
    opt, said = notes_of(lambda: keras.optimizers.SGD(lr=1, momentum=0.5))
    assert len(said) == (hvd.rank() == 0)
    model = network(keras, hvd.DistributedOptimizer(opt))
    keras.backend.set_value(model.optimizer.lr, 0.25)
    assert keras.backend.get_value(model.optimizer.lr) == np.float32(0.25)
    model.optimizer.lr = 0.5
    assert float(model.optimizer.learning_rate.numpy()) == 0.5
    assert "lr" not in model.optimizer.get_config()
    with pytest.raises(ValueError, match=r"not recognized: \{'rate'"):
        keras.optimizers.SGD(rate=0.1)
    assert float(keras.optimizers.SGD(0.125).learning_rate.numpy()) == 0.125


@in_one_start(2)
def test_legacy_optimizers():
    keras, _ = modules()
    from tensorflow.keras.optimizers.legacy import SGD

    made, _ = notes_of(lambda: SGD(0.5, momentum=0.25))
    assert type(made) is keras.optimizers.SGD
    assert (float(made.learning_rate.numpy()), made.momentum) == (0.5, 0.25)
    # As without the bridge: today's optimizers are none of them.
    assert not isinstance(made, SGD)
    assert not hasattr(SGD, "apply_gradients")


@in_one_start(2)
def test_scaled_losses():
    import tensorflow as tf

    keras, hvd = modules()
    scaling = keras.mixed_precision.LossScaleOptimizer
    weights = keras.Variable([1.0, -2.0])

    def step(opt, old):
        weights.assign([1.0, -2.0])

        @tf.function
        def one():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weights.value**2) * (hvd.rank() + 1.0)
                scaled = opt.get_scaled_loss(loss) if old else opt.scale_loss(loss)
            grads = tape.gradient(scaled, [weights])
            if old:
                grads = opt.get_unscaled_gradients(grads)
            opt.apply_gradients(zip(grads, [weights]))
            return grads[0]

        return [one().numpy(), weights.numpy()]

    def make():
        return scaling(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), initial_scale=256.0)

    opt = make()
    for _ in range(2):  # not built, and built
        grads, after = step(opt, True)
        assert grads.tolist() == [2.0 * (hvd.rank() + 1), -4.0 * (hvd.rank() + 1)]
        assert np.allclose(after, [0.7, -1.4])
    scaled, after = step(make(), False)
    assert scaled.tolist() == [512.0 * (hvd.rank() + 1), -1024.0 * (hvd.rank() + 1)]
    assert np.allclose(after, [0.7, -1.4])
    # One that is called both ways takes today's gradients again.
    assert np.allclose(step(opt, False)[1], [0.7, -1.4])


@in_one_start(2)
def test_references_to_variables():
    keras, _ = modules()
    first, second = keras.Variable([1.0]), keras.Variable([1.0])
    keys = {first.ref(): "first", second.ref(): "second"}
    assert keys[first.ref()] == "first"
    assert next(iter(keys)).deref() is first


@in_one_start(2)
def test_names_that_moved():
    keras, hvd = modules()
    assert not hasattr(keras.layers, "core")
    from keras.layers.convolutional import Conv2D
    from keras.layers.core import Dense, Dropout
    from keras.layers.normalization import BatchNormalization
    from keras.preprocessing import image
    from keras.preprocessing.image import ImageDataGenerator
    from keras.utils import np_utils
    from tensorflow.keras.layers.experimental.preprocessing import Rescaling

    assert (Conv2D, Dense, Dropout) == (keras.layers.Conv2D, keras.layers.Dense, keras.layers.Dropout)
    assert (BatchNormalization, Rescaling) == (keras.layers.BatchNormalization, keras.layers.Rescaling)
    assert np_utils.to_categorical([1], 3).tolist() == [[0, 1, 0]]
    assert image.ImageDataGenerator is ImageDataGenerator
    # Nothing else is found, and what was there is what it was.
    with pytest.raises(AttributeError, match=r"module 'keras\.preprocessing\.image' has no attribute 'Nothing'"):
        image.Nothing  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        import keras.layers.nothing
    assert image.load_img.__module__.startswith("keras.")

    # With the methods for generators, and with a share of the work for each rank.
    pictures = np.random.default_rng(hvd.rank()).random((32, 8, 8, 1)).astype("float32")
    labels = np_utils.to_categorical(np.arange(32) % 3, 3)
    model = keras.Sequential([keras.Input([8, 8, 1]), keras.layers.Flatten(), Dense(3, activation="softmax")])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "categorical_crossentropy")
    batches = ImageDataGenerator(rotation_range=8, width_shift_range=0.1).flow(pictures, labels, batch_size=8)
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    history, said = notes_of(
        lambda: model.fit_generator(batches, 4, 2, 0, [start], workers=2, max_queue_size=3, initial_epoch=1)
    )
    assert len(history.history["loss"]) == 1
    assert batches.workers == 2
    assert len(said) == 2 * (hvd.rank() == 0)
    assert np.isfinite(model.evaluate_generator(batches, 4))
    weights = [one.tolist() for one in model.get_weights()]
    assert hvd.allreduce(weights[1], op=hvd.Average).numpy().tolist() == pytest.approx(weights[1], abs=1e-6)


@in_one_start(2)
def test_copies_of_called_variables_are_plain():
    from horovod.compat.keras3.optimizers import CalledList

    one = CalledList([1, 2])
    assert type(copy.deepcopy(one)) is type(pickle.loads(pickle.dumps(one))) is type(one()) is list


@on_ranks(1, env={"HOROVOD_COMPAT": "0"}, preloaded="tensorflow")
def test_without_bridges_keras_is_its_own():
    import horovod.keras
    import horovod.tensorflow  # noqa: F401

    keras, _ = modules()
    patched = [
        keras.Model.compile,
        keras.Model.fit,
        keras.optimizers.Optimizer.__init__,
        keras.mixed_precision.LossScaleOptimizer.apply,
    ]
    assert not [one for one in patched if "horovod" in one.__code__.co_filename]
    assert not any("horovod.compat" in type(one).__module__ for one in sys.meta_path)
    assert not hasattr(keras.Variable, "ref")
    optimizer = keras.optimizers.SGD(0.1)
    for call in (
        lambda: optimizer.variables(),
        lambda: network(keras, "sgd", experimental_run_tf_function=False),
        lambda: optimizer.lr,
        lambda: keras.optimizers.SGD(lr=0.1),
        lambda: importlib.import_module("keras.utils.np_utils"),
    ):
        with pytest.raises((TypeError, AttributeError, ValueError, ModuleNotFoundError)):
            call()


@in_one_start(2)
def test_the_table_of_names_is_current():
    import horovod.tensorflow as hvd

    if hvd.rank() == 0:
        script = runpy.run_path(str(GENERATOR))
        assert script["TARGET"].read_text() == script["text"](), "run tools/gen_compat_names.py"
    assert "horovod.compat.tf1" not in sys.modules
