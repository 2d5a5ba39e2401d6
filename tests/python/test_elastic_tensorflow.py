# SPDX-License-Identifier: Apache-2.0
"""States and callbacks of horovod.tensorflow.elastic, horovod.tensorflow.keras.elastic and horovod.keras.elastic."""

import os
import random
from unittest import mock

import changing_job
import numpy as np
import pytest
from keras_training import is_keras3, modules, same_bits_on_all_ranks, with_each_keras
from ranks import in_one_start

STEPS = 6


def model_and_data(keras):
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(3), keras.layers.Dense(1)])
    features = np.random.default_rng(5).normal(size=[STEPS * 4, 2])
    return model, features, features.sum(axis=1, keepdims=True)


def values_of(model):
    found = model.optimizer.variables
    variables = [*model.weights, *(found if isinstance(found, (list, tuple)) else found())]
    return [np.asarray(variable) for variable in variables]


def is_equal(one, other):
    return len(one) == len(other) and all((a == b).all() for a, b in zip(one, other))


@in_one_start(2)
def test_a_list_of_variables_and_objects():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    weights = tf.Variable([1.0 + hvd.rank(), 2.0])
    flags = tf.Variable([True, hvd.rank() == 0])
    state = hvd.elastic.TensorFlowState([weights, flags], step=hvd.rank())

    @tf.function
    def step():
        weights.assign_add(hvd.allreduce(tf.ones(2), op=hvd.Sum))

    with changing_job.ChangingJob() as job:

        @job.run
        def train(state):
            while state.step < 4:
                step()
                state.step += 1
                if state.step == 3 and job.formed == 1:
                    job.end(tf.errors.UnknownError(None, None, "an operation failed"))
                state.commit()
            return job.formed

        assert train(state) == 2
    assert weights.numpy().tolist() == [9.0, 10.0]
    assert flags.numpy().tolist() == [True, True]
    assert job.reported[-1] == 4


@in_one_start(2)
def test_a_rank_with_another_model_is_told():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    state = hvd.elastic.TensorFlowState([tf.Variable([1.0] * (2 + hvd.rank()), name="w")])
    with pytest.raises((ValueError, tf.errors.UnknownError)) as caught:
        state.sync()
    if hvd.rank() == 1:
        assert "variable 1 is 'w:0', float32 [3], and 'w:0', float32 [2], on rank 0" in str(caught.value)


@in_one_start(1)
def test_arguments_of_states():
    import horovod.tensorflow as hvd
    import horovod.tensorflow.keras as hvd_keras
    import tensorflow as tf

    with pytest.raises(ValueError, match="variables=None: there are no global variables"):
        hvd.elastic.TensorFlowState()
    with pytest.raises(TypeError, match="is a single variable"):
        hvd.elastic.TensorFlowState(tf.Variable(1.0))
    with pytest.raises(TypeError, match="model=3 is no Keras model"):
        hvd.elastic.TensorFlowKerasState(3)
    unbuilt = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="has no variables yet: give it an Input"):
        hvd.elastic.TensorFlowKerasState(unbuilt)
    state = hvd_keras.elastic.KerasState(tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)]))
    with pytest.raises(ValueError, match="the state has no batch: make it by"):
        hvd_keras.elastic.UpdateBatchStateCallback(state)
    with pytest.raises(TypeError, match="state=3 is no state of a Keras model"):
        hvd_keras.elastic.CommitStateCallback(3)
    with pytest.raises(ValueError, match="batches_per_commit=0 is too small"):
        hvd_keras.elastic.CommitStateCallback(state, 0)


@in_one_start(1)
def test_a_graph_of_version_1():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        weights = v1.get_variable("weights", initializer=[1.0, 2.0])
        more = weights.assign_add([1.0, 1.0])
        session.run(v1.global_variables_initializer())
        state = hvd.elastic.TensorFlowState(session=session, step=0)
        session.run(more)
        state.commit()
        session.run(more)
        state.restore()
        assert session.run(weights).tolist() == [2.0, 3.0]
        state.sync()


@with_each_keras(ranks=(1,))
def test_commits_hold_values_and_an_optimizer_is_built():
    keras, hvd = modules()
    model, features, targets = model_and_data(keras)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse")
    state = hvd.elastic.KerasState(model, batch=0)
    start = values_of(model)
    assert len(start) > len(model.weights) + 2
    model.fit(features, targets, batch_size=4, verbose=0)
    state.commit()
    after = values_of(model)
    model.optimizer.learning_rate = 0.5
    model.fit(features, targets, batch_size=4, verbose=0)
    state.commit()
    model.fit(features, targets, batch_size=4, verbose=0)
    assert not is_equal(values_of(model), after)
    assert state._go_back_to(1)
    assert is_equal(values_of(model), after)
    assert float(np.asarray(model.optimizer.learning_rate)) == pytest.approx(0.1)
    assert not is_equal(start, after)


@with_each_keras(ranks=(1,))
def test_sums_of_passes_that_were_lost_are_forgotten():
    keras, hvd = modules()
    with changing_job.ChangingJob():  # alone: otherwise nothing is exchanged
        model, features, targets = model_and_data(keras)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2)
        model.compile(optimizer, "mse")
        state = hvd.elastic.KerasState(model)
        model.fit(features[:4], targets[:4], batch_size=4, verbose=0)
        assert int(optimizer._agg_helper.counter) == 1
        state.restore()
        assert int(optimizer._agg_helper.counter) == 0
        model.fit(features[:12], targets[:12], batch_size=4, verbose=0)
        state.commit()
        model.fit(features[:4], targets[:4], batch_size=4, verbose=0)
        state.restore()
        assert int(optimizer._agg_helper.counter) == 1


class Fault(Exception):
    """What frameworks make of a failed operation."""


def failing(keras, job, faults):
    """Return a callback that ends generations after the batches that `faults` counts, over all calls of fit."""

    class Failing(keras.callbacks.Callback):
        batches = 0

        def on_train_batch_end(self, batch, logs=None):
            self.batches += 1
            if self.batches in faults:
                job.end(Fault())

    return Failing()


def fit_options(kind, tf, features, targets):
    dataset = tf.data.Dataset.from_tensor_slices((features, targets)).batch(4)
    if kind == "arrays":
        return {"x": features, "y": targets, "batch_size": 4, "shuffle": False}
    if kind == "steps":
        return {"x": features, "y": targets, "batch_size": 4, "shuffle": False, "steps_per_epoch": STEPS}
    if kind == "dataset":
        return {"x": dataset}
    if kind == "unknown":
        return {"x": dataset.filter(lambda *_: True)}
    return {"x": dataset.repeat(), "steps_per_epoch": STEPS}


@with_each_keras(ranks=(1,))
def test_an_interrupted_epoch_goes_on_where_the_commit_is():
    """The weights are those of a run without faults, whatever the order of callbacks and the style of fit."""
    import tensorflow as tf

    keras, hvd = modules()
    epochs = 2
    draws = random.Random(11)
    model, features, targets = model_and_data(keras)
    model.compile(keras.optimizers.Adam(0.05), "mse")
    start = model.get_weights()
    for kind in ("arrays", "steps", "dataset", "unknown", "repeat"):
        results = []
        for faults in ([], draws.sample(range(1, epochs * STEPS + 1), 3)):
            model.set_weights(start)
            model.compile(keras.optimizers.Adam(0.05), "mse")
            with changing_job.ChangingJob() as job:
                state = hvd.elastic.KerasState(model, batch=0, epoch=0)
                callbacks = [
                    hvd.elastic.UpdateEpochStateCallback(state),
                    hvd.elastic.UpdateBatchStateCallback(state),
                    hvd.elastic.CommitStateCallback(state, batches_per_commit=draws.choice([1, 1, 2])),
                    failing(keras, job, faults),
                ]
                draws.shuffle(callbacks)
                kept = draws.choice(["initial_epoch", "epochs"])

                @job.run
                def train(state):
                    style = {"epochs": epochs - state.epoch}
                    if kept == "initial_epoch":  # noqa: B023
                        style = {"epochs": epochs, "initial_epoch": state.epoch}
                    options = fit_options(kind, tf, features, targets)  # noqa: B023
                    model.fit(**options, **style, callbacks=callbacks, verbose=0)  # noqa: B023

                train(state)
            assert (state.epoch, state.batch) == (epochs, 0)
            results.append(model.get_weights())
            assert job.formed == 1 + len(faults), kind
        assert is_equal(*results), kind


@with_each_keras()
def test_all_ranks_train_alike_through_a_change():
    import horovod.keras
    import tensorflow as tf

    keras, _ = modules()
    for hvd in (horovod.tensorflow.keras, horovod.keras):
        model, features, targets = model_and_data(keras)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.05)), "mse")
        with changing_job.ChangingJob() as job, mock.patch.dict(os.environ, HOROVOD_ELASTIC_VERIFY="1"):
            state = hvd.elastic.KerasState(model, batch=0, epoch=0)
            callbacks = [
                hvd.elastic.CommitStateCallback(state),
                hvd.elastic.UpdateEpochStateCallback(state),
                hvd.elastic.UpdateBatchStateCallback(state),
                keras.callbacks.LambdaCallback(
                    on_train_batch_end=lambda batch, logs: job.end(Fault()) if job.formed == batch == 3 else None
                ),
            ]

            @job.run
            def train(state):
                data = tf.data.Dataset.from_tensor_slices((features, targets))  # noqa: B023
                mine = data.shard(hvd.size(), hvd.rank()).batch(2)  # noqa: B023
                model.fit(mine, epochs=2 - state.epoch, callbacks=callbacks, verbose=0)  # noqa: B023

            job.formed = 3
            train(state)
        assert job.formed == 4
        assert same_bits_on_all_ranks(values_of(model))
        assert is_keras3(keras) or len(model.weights) == 4
