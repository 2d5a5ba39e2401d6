# SPDX-License-Identifier: Apache-2.0
"""What tests of horovod.keras do on JAX and on PyTorch. The functions run on every rank, after hvd.init()."""

import os
import tempfile

import numpy as np
import pytest


def _modules():
    import horovod.keras as hvd
    import keras

    assert hvd.backend == keras.config.backend() == os.environ["KERAS_BACKEND"]
    return keras, hvd


def _network(keras):
    layers = keras.layers
    return keras.Sequential([keras.Input([5]), layers.Dense(8, activation="tanh"), layers.Dense(1)])


def _data():
    generator = np.random.default_rng(3)
    features = generator.normal(size=(48, 5)).astype(np.float32)
    return features, features.sum(1, keepdims=True)


def _share(hvd, array):
    """Return the rows of each batch of 12 that this rank has."""
    return array.reshape(4, 12, -1)[:, hvd.rank() :: hvd.size()].reshape(48 // hvd.size(), -1)


def _same_on_all_ranks(hvd, weights):
    every = hvd.allgather_object([one.tobytes() for one in weights])
    return all(one == every[0] for one in every)


def fit_equals_one_process():
    """Training on shares of the data gives the weights of one process on all of it."""
    keras, hvd = _modules()
    features, wanted = _data()
    optimizers = keras.optimizers
    for make in (
        lambda: optimizers.SGD(0.05, momentum=0.9),
        lambda: optimizers.Adam(0.01, clipnorm=1.0),
        lambda: optimizers.AdamW(optimizers.schedules.ExponentialDecay(0.01, 2, 0.9)),
    ):
        keras.utils.set_random_seed(10 + hvd.rank())
        model, one = _network(keras), _network(keras)
        one.set_weights(hvd.broadcast_object(model.get_weights()))
        one.compile(make(), "mse")
        one.fit(features, wanted, batch_size=12, epochs=2, shuffle=False, verbose=0)
        wrapped = hvd.DistributedOptimizer(make(), gradient_predivide_factor=2.0)
        assert isinstance(wrapped, type(make()))
        model.compile(wrapped, "mse")
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
        rows = {"batch_size": 12 // hvd.size(), "epochs": 2, "shuffle": False, "verbose": 0, "callbacks": callbacks}
        model.fit(_share(hvd, features), _share(hvd, wanted), **rows)
        for mine, theirs in zip(model.get_weights(), one.get_weights()):
            assert np.abs(mine - theirs).max() <= 5e-6, make
        assert _same_on_all_ranks(hvd, model.get_weights())
        hvd.check_in_sync(model)


def overflow_on_one_rank():
    """All ranks skip a step whose gradients are not finite on one of them."""
    keras, hvd = _modules()
    features, wanted = (_share(hvd, one).copy() for one in _data())
    rows = 12 // hvd.size()
    if hvd.rank() == 1:
        features[2 * rows : 3 * rows] = np.inf
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        for outside in (False, True):
            keras.utils.set_random_seed(1)
            model = _network(keras)
            optimizer = keras.optimizers.SGD(0.01)
            if outside:
                optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer)
            model.compile(hvd.DistributedOptimizer(optimizer), "mse")
            model.fit(features, wanted, batch_size=rows, epochs=1, shuffle=False, verbose=0)
            weights = model.get_weights()
            assert np.isfinite(np.concatenate([one.ravel() for one in weights])).all()
            assert _same_on_all_ranks(hvd, weights)
            steps = [model.optimizer.iterations, model.optimizer.dynamic_scale]
            skipped = hvd.allgather_object([float(keras.ops.convert_to_numpy(one)) for one in steps])
            assert all(one == skipped[0] for one in skipped), skipped
            assert skipped[0][0] < 4, skipped
            assert skipped[0][1] < 2.0**15, skipped
    finally:
        keras.mixed_precision.set_global_policy("float32")


def callbacks_values_and_files():
    """Metrics, learning rates, operations on values, and a model that is saved and goes on."""
    keras, hvd = _modules()
    rank, size = hvd.rank(), hvd.size()
    model = _network(keras)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.4, momentum=0.5)), "mse")
    callbacks = [
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(0.4, warmup_epochs=1),
    ]
    history = model.fit(*(_share(hvd, one) for one in _data()), batch_size=6, epochs=2, verbose=0, callbacks=callbacks)
    assert len({tuple(one) for one in hvd.allgather_object(history.history["loss"])}) == 1
    assert history.history["lr"][-1] == pytest.approx(0.4)
    assert model.optimizer.momentum == 0.5
    numbers = keras.ops.convert_to_numpy
    assert numbers(hvd.allreduce([1.0 + rank])).tolist() == [(1 + size) / 2]
    assert numbers(hvd.allgather([rank])).tolist() == list(range(size))
    assert numbers(hvd.broadcast(rank + 3, 1)).item() == 4
    assert numbers(hvd.reducescatter([[1.0]] * size, op=hvd.Sum)).tolist() == [[size]]
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        plain, loaded = keras.models.load_model(f"{folder}/model.keras"), hvd.load_model(f"{folder}/model.keras")
    assert not hasattr(plain.optimizer, "_hvd")
    assert type(loaded.optimizer).__name__ == type(plain.optimizer).__name__ == "SGD"
    hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    loaded.fit(*(_share(hvd, one) for one in _data()), batch_size=6, verbose=0)
    with pytest.raises(NotImplementedError, match="needs Keras on TensorFlow"):
        hvd.PartialDistributedOptimizer(keras.optimizers.SGD())
    with pytest.raises(ValueError, match=r"Average or hvd\.Sum only"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), op=hvd.Max)
