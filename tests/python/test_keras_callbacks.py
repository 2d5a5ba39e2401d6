# SPDX-License-Identifier: Apache-2.0
"""The callbacks of horovod.tensorflow.keras and horovod.keras, and their operations on values."""

import contextlib
import io
import os

import numpy as np
import pytest
from keras_training import (
    data,
    fit,
    is_keras3,
    loss,
    modules,
    network,
    same_bits_on_all_ranks,
    share,
    with_each_keras,
)


def both_modules():
    import horovod.keras
    import horovod.tensorflow.keras

    return horovod.tensorflow.keras, horovod.keras


def values_of(optimizer):
    found = optimizer.variables
    return [np.asarray(one) for one in (found if isinstance(found, (list, tuple)) else found())]


@with_each_keras("b7", "c3", "c4", "c16")
def test_all_ranks_start_from_the_roots_state_once():
    keras, _ = modules()
    for hvd in both_modules():
        for wrap in (hvd.DistributedOptimizer, lambda plain: plain):
            model = network(keras)
            model.set_weights([one * (hvd.rank() + 1.0) for one in model.get_weights()])
            optimizer = wrap(keras.optimizers.Adam(0.01 * (hvd.rank() + 1)))
            callback = hvd.callbacks.BroadcastGlobalVariablesCallback(1)
            assert isinstance(callback, keras.callbacks.Callback)
            mine = share(data(), hvd.rank(), hvd.size())
            rows = 12 // hvd.size()
            one_batch = [part[:rows] for part in mine]
            options = {"size": hvd.size(), "epochs": 1, "callbacks": [callback]}
            fit(keras, model, optimizer, one_batch, run_eagerly=hvd.__name__ == "horovod.keras", **options)
            assert same_bits_on_all_ranks([*model.get_weights(), *values_of(model.optimizer)])
            if is_keras3(keras):  # Keras 2 does not count it among the variables
                assert np.isclose(float(np.asarray(model.optimizer.learning_rate)), 0.02)
            before = model.get_weights()
            model.set_weights([one + hvd.rank() for one in before])
            fit(keras, model, None, one_batch, **options)
            assert not same_bits_on_all_ranks(model.get_weights())  # once only
            # A process that joins an elastic job brings a callback of its own.
            if hvd.rank() == 0:
                options["callbacks"] = [hvd.callbacks.BroadcastGlobalVariablesCallback(1)]
            os.environ["HOROVOD_ELASTIC_ID"] = "joins"
            try:
                fit(keras, model, None, one_batch, **options)
            finally:
                del os.environ["HOROVOD_ELASTIC_ID"]
            assert same_bits_on_all_ranks(model.get_weights())


@with_each_keras("g8")
def test_local_variables_keep_their_values_and_what_the_optimizer_keeps_for_them():
    keras, hvd = modules()
    own = keras.layers.Dense(hvd.rank() + 1, name="own")  # of another shape on every rank
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(5, name="common"), own])
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.Adam(0.01), local_layers=own)
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=own.weights)
    model.compile(optimizer, "mse")
    features, _ = share(data(), hvd.rank(), hvd.size())
    model.fit(features, np.ones([len(features), hvd.rank() + 1]), batch_size=6, verbose=0, callbacks=[callback])
    assert same_bits_on_all_ranks(model.get_layer("common").get_weights())
    assert own.get_weights()[0].shape == (5, hvd.rank() + 1)


@with_each_keras("c5", "c6")
def test_metrics_are_averaged_in_place_before_later_callbacks():
    keras, _ = modules()
    for hvd in both_modules():
        seen = []

        class Later(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                seen.append(dict(logs))  # noqa: B023

        own = []

        class Before(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                own.append(dict(logs))  # noqa: B023

        model = network(keras)
        model.compile(keras.optimizers.SGD(0.1), loss(keras), metrics=["accuracy"], run_eagerly=True)
        mine = share(data(), hvd.rank(), hvd.size())
        callbacks = [Before(), hvd.callbacks.MetricAverageCallback(), Later()]
        history = model.fit(*mine, batch_size=6, verbose=0, callbacks=callbacks, validation_data=mine)
        from horovod.common.objects import allgather_object

        everyone = allgather_object({name: float(value) for name, value in own[0].items()})
        assert everyone[0] != everyone[1]
        for name in ("loss", "val_loss", "accuracy", "val_accuracy"):
            assert np.isclose(seen[0][name], np.mean([one[name] for one in everyone]))
            assert np.isclose(history.history[name][0], seen[0][name])
    callback = both_modules()[0].callbacks.MetricAverageCallback()
    with pytest.raises(ValueError, match="same metrics on all ranks"):
        callback.on_epoch_end(0, {"loss": 1.0} if both_modules()[0].rank() else {"val_loss": 1.0})


def rates(keras, hvd, callback, epochs=4, momentum=0.0, optimizer=None, **compile_options):
    """The learning rate of every batch, and the printed text. An epoch has 4 batches."""
    found = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            found.append(float(np.asarray(self.model.optimizer.learning_rate)))

    text = io.StringIO()
    optimizer = optimizer or hvd.DistributedOptimizer(keras.optimizers.SGD(0.3, momentum=momentum))
    model = network(keras)
    mine = share(data(), hvd.rank(), hvd.size())
    with contextlib.redirect_stdout(text):
        options = {"size": hvd.size(), "epochs": epochs, "callbacks": [callback, Watch()]}
        fit(keras, model, optimizer, mine, **({"run_eagerly": True} | compile_options), **options)
    return np.array(found).reshape(epochs, -1), text.getvalue(), model


@with_each_keras("c7", "c14", "k3")
def test_warm_up():
    keras, _ = modules()
    for hvd in both_modules():
        callback = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.4, warmup_epochs=2, verbose=1)
        found, text, model = rates(keras, hvd, callback)
        steps = np.arange(1, 9) / 8
        assert np.allclose(found[:2].ravel(), 0.2 + 0.2 * steps)  # from 0.4 / size on, over 8 batches
        assert np.allclose(found[2:], 0.4)
        assert text.count("warm-up is over") == (hvd.rank() == 0)
        assert np.isclose(model.history.history["lr"][-1], 0.4)
        # Keras tells of the first of several steps only; the rate must not stay where that one left it.
        several = hvd.callbacks.LearningRateWarmupCallback(0.4, warmup_epochs=1)
        assert np.allclose(rates(keras, hvd, several, epochs=2, steps_per_execution=4)[0][1:], 0.4)
        silent = hvd.callbacks.LearningRateWarmupCallback(0.4, warmup_epochs=1)
        assert "warm-up" not in rates(keras, hvd, silent, epochs=2)[1]


@with_each_keras("c19")
def test_schedules():
    keras, hvd = modules()
    schedule = hvd.callbacks.LearningRateScheduleCallback
    found, _, _ = rates(keras, hvd, schedule(0.8, 0.5, start_epoch=1, end_epoch=3))
    assert np.allclose(found, [[0.3] * 4, [0.8] * 4, [0.4] * 4, [0.4] * 4])
    found, _, _ = rates(keras, hvd, schedule(0.8, lambda epoch: 1.0 / (1.0 + epoch), staircase=False))
    assert np.allclose(found.ravel(), 0.8 / (1.0 + np.arange(16) / 4))
    with pytest.raises(ValueError, match="initial_lr=None"):
        schedule(None, 0.5)
    with pytest.raises(TypeError, match="multiplier"):
        schedule(0.1, "half")
    decaying = keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5))
    with pytest.raises(TypeError, match="made with a number only"):
        rates(keras, hvd, schedule(0.8, 0.5), optimizer=decaying)


@with_each_keras("c8")
def test_momentum_is_corrected_for_the_batch_that_changes_the_rate():
    keras, hvd = modules()
    makers = [keras.optimizers.SGD] + ([] if is_keras3(keras) else [keras.optimizers.legacy.SGD])
    for make in makers:
        for correction in (True, False):
            # One weight, gradient 1: what the momentum of each batch was can be read off the steps.
            model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1, use_bias=False)])
            model.set_weights([np.zeros([1, 1])])
            model.compile(hvd.DistributedOptimizer(make(0.1, momentum=0.5)), lambda wanted, found: found[:, 0])
            weights = [0.0]
            watch = keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda batch, logs: weights.append(model.get_weights()[0].item())  # noqa: B023
            )
            schedule = hvd.callbacks.LearningRateScheduleCallback(
                0.1, lambda epoch: 10.0**-epoch, momentum_correction=correction
            )
            model.fit(np.ones([3, 1]), np.ones([3, 1]), batch_size=1, epochs=2, verbose=0, callbacks=[schedule, watch])
            velocity, expected = 0.0, []
            for batch in range(6):
                rate = 0.1 if batch < 3 else 0.01
                velocity = velocity * (0.05 if correction and batch == 3 else 0.5) - rate
                expected.append(velocity)
            assert np.allclose(np.diff(weights), expected, rtol=1e-5), (make, correction)
            assert model.optimizer.get_config()["momentum"] == 0.5


@with_each_keras("c19")
def test_the_best_model_is_kept():
    import os
    import tempfile

    keras, _ = modules()
    for hvd in both_modules():
        callback = hvd.callbacks.BestModelCheckpoint(monitor="loss")
        assert isinstance(callback, keras.callbacks.ModelCheckpoint)
        mine = share(data(), hvd.rank(), hvd.size())
        with pytest.raises(ValueError, match="no filepath"):
            fit(keras, network(keras), "sgd", mine, size=hvd.size(), epochs=1, callbacks=[callback])
        with tempfile.TemporaryDirectory() as folder:
            callback.filepath = os.path.join(folder, "best.keras")
            fit(keras, network(keras), "sgd", mine, size=hvd.size(), epochs=1, callbacks=[callback])
            assert os.listdir(folder) == ["best.keras"]


@with_each_keras("c19")
def test_operations_on_values():
    import horovod.keras
    import horovod.tensorflow.keras
    import tensorflow as tf

    for hvd in (horovod.tensorflow.keras, horovod.keras):
        rank, size = hvd.rank(), hvd.size()
        average = sum(range(size)) / size
        assert np.allclose(hvd.allreduce([float(rank)] * 2), average)
        assert np.allclose(hvd.allreduce(float(rank), op=hvd.Sum), average * size)
        assert np.allclose(hvd.allreduce(np.array([rank * 1.0]), op=hvd.Sum, prescale_factor=2.0), average * size * 2)
        with pytest.warns(DeprecationWarning, match="average"):
            assert np.allclose(hvd.allreduce([float(rank)], average=False), average * size)
        assert hvd.allgather(np.full([rank + 1], rank)).numpy().tolist() == [
            r for r in range(size) for _ in range(r + 1)
        ]
        assert hvd.broadcast(rank + 5, root_rank=size - 1).numpy() == size + 4
        assert np.allclose(hvd.reducescatter(np.ones([2, 3]), op=hvd.Sum), size)
        assert np.allclose(tf.function(lambda: hvd.allreduce(tf.constant(1.0)), autograph=False)(), 1.0)  # noqa: B023
        with pytest.raises(RuntimeError, match="runs eagerly"):
            hvd.broadcast_global_variables(0)
