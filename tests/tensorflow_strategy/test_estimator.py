# SPDX-License-Identifier: Apache-2.0
"""The estimator: training, evaluation, checkpoints, resuming."""

from __future__ import annotations

import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from both import with_each_strategy  # noqa: E402
from ranks import in_one_start  # noqa: E402

ROWS, BATCH = 24, 4


def data():
    random = np.random.default_rng(5)
    features = random.normal(size=(ROWS, 3))
    return features, features @ np.array([[1.0], [-2.0], [0.5]])


def input_fn(mode, input_context, params):
    """This rank's rows of every batch of BATCH rows of all ranks."""
    import tensorflow as tf

    rows = BATCH // input_context.num_input_pipelines
    dataset = tf.data.Dataset.from_tensor_slices(data()).batch(rows)
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.repeat() if mode == "train" and not params.get("ends") else dataset


def model_fn(features, labels, mode, params):
    """A linear model; the gradients are applied by a host call, or by minimize()."""
    import tensorflow as tf
    from horovod.tensorflow.estimator import EstimatorSpec

    v1 = tf.compat.v1
    # Each rank would begin with something else.
    weights = v1.get_variable("weights", initializer=np.full([3, 1], params["begin"]))
    found = features @ weights
    loss = tf.reduce_sum((found - labels) ** 2) / params["batch"]
    if params.get("counts"):
        v1.get_variable(
            "rows_seen",
            initializer=0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
            trainable=False,
        ).assign_add(1.0)
    if mode == "eval":
        return EstimatorSpec(mode, loss=loss, eval_metric_ops={"mae": v1.metrics.mean_absolute_error(labels, found)})
    optimizer = v1.train.MomentumOptimizer(0.05, 0.9)
    if params.get("minimize"):
        step = v1.train.get_global_step()
        return EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, global_step=step))
    pairs = optimizer.compute_gradients(loss)
    gradients, variables = [one for one, _ in pairs], [one for _, one in pairs]
    host_call = (lambda *all: optimizer.apply_gradients(zip(all, variables)), gradients)
    # Programs for IPUs give what the device computes besides.
    train_op = tf.identity(loss) if params.get("both") else None
    return EstimatorSpec(mode, loss=loss, train_op=train_op, host_call=host_call)


def estimator(strategy, folder=None, **params):
    from horovod.tensorflow.estimator import Estimator, RunConfig

    config = RunConfig(train_distribute=strategy, save_checkpoints_steps=5)
    return Estimator(model_fn, model_dir=folder, config=config, params={"batch": BATCH, "begin": 0.25, **params})


def one_process(steps):
    """The weights after some steps, and the loss and error of all data with them."""
    features, labels = data()
    weights, momentum = np.full([3, 1], 0.25), np.zeros([3, 1])
    rate, kept = map(np.float32, (0.05, 0.9))  # as v1 optimizers keep them
    for step in range(steps):
        rows = slice(step * BATCH % ROWS, step * BATCH % ROWS + BATCH)
        x, y = features[rows], labels[rows]
        momentum = float(kept) * momentum + 2 * x.T @ (x @ weights - y) / BATCH
        weights = weights - float(rate) * momentum
    errors = features @ weights - labels
    return weights, float((errors**2).sum() / (ROWS / BATCH) / BATCH), float(np.abs(errors).mean())


@pytest.mark.row("h3", "h5", "h6", "h7", "h8", "h9", "h15")
@in_one_start(2)
@with_each_strategy
def test_training_goes_on_where_the_checkpoint_ends(make):
    import horovod.tensorflow as hvd

    strategy = make(variables_on_host=True)
    rank, size = hvd.rank(), hvd.size()
    # Losses are divided by the batch of one rank.
    own = {"begin": 0.25 + rank, "batch": BATCH // size}
    first = estimator(strategy, **own)
    assert len(set(hvd.allgather_object(first.model_dir))) == 1
    first.train(input_fn, max_steps=ROWS // BATCH)
    np.testing.assert_allclose(first.get_variable_value("weights"), one_process(ROWS // BATCH)[0], rtol=0, atol=1e-9)
    again = estimator(strategy, first.model_dir, **own)
    again.train(input_fn, steps=7)
    weights, loss, error = one_process(13)
    np.testing.assert_allclose(again.get_variable_value("weights"), weights, rtol=0, atol=1e-9)
    assert again.get_variable_value("global_step") == 13
    again.train(input_fn, max_steps=13)  # it is there already
    assert again.get_variable_value("global_step") == 13
    assert sorted(again.get_variable_names()) == ["global_step", "weights", "weights/Momentum"]
    found = again.evaluate(input_fn)
    assert found["global_step"] == 13
    assert found["loss"] == pytest.approx(loss, abs=1e-9)
    assert found["mae"] == pytest.approx(error, abs=1e-6)
    assert len(set(map(str, hvd.allgather_object(found)))) == 1


@pytest.mark.row("h15")
@in_one_start(2)
def test_the_step_is_counted_once_and_input_ends_for_all():
    import horovod.tensorflow as hvd
    from horovod.tensorflow.strategy import HorovodStrategy

    strategy = HorovodStrategy()
    made = estimator(strategy, minimize=True, batch=BATCH // 2)
    made.train(input_fn, steps=3)
    assert made.get_variable_value("global_step") == 3
    np.testing.assert_allclose(made.get_variable_value("weights"), one_process(3)[0], rtol=0, atol=1e-9)

    def uneven(mode, input_context, params):
        return input_fn(mode, input_context, {"ends": True}).take(2 + 3 * hvd.rank())

    made.train(uneven, steps=100)
    assert made.get_variable_value("global_step") == 5


@in_one_start(2)
def test_when_checkpoints_are_saved():
    import os
    import tempfile

    from horovod.tensorflow.estimator import Estimator, RunConfig

    def of(config):
        return config.save_checkpoints_steps, config.save_checkpoints_secs

    assert of(RunConfig()) == (None, 600)
    assert of(RunConfig(save_checkpoints_steps=5)) == (5, None)
    assert of(RunConfig(save_checkpoints_secs=5)) == (None, 5)
    assert of(RunConfig(save_checkpoints_steps=5).replace(save_checkpoints_secs=60)) == (None, 60)
    assert of(RunConfig().replace(save_checkpoints_steps=5, tf_random_seed=1)) == (5, None)
    assert RunConfig(save_checkpoints_steps=5).replace(model_dir="here").model_dir == "here"
    with pytest.raises(ValueError, match="RunConfig has no save_steps"):
        RunConfig().replace(save_steps=5)
    for config in (
        RunConfig(save_checkpoints_steps=None),
        RunConfig(save_checkpoints_secs=None),
        RunConfig().replace(save_checkpoints_secs=None),
    ):
        assert of(config) == (None, None)
    with tempfile.TemporaryDirectory() as folder:
        made = Estimator(model_fn, folder, config, {"batch": BATCH, "begin": 0.25, "minimize": True})
        made.train(input_fn, steps=2)
        assert not [name for name in os.listdir(folder) if "ckpt" in name]
        assert made.latest_checkpoint() is None


@pytest.mark.row("h15")
@in_one_start(2)
def test_variables_that_are_sums_are_saved_by_all_ranks():
    import os
    import tempfile

    import horovod.tensorflow as hvd
    import tensorflow as tf
    from horovod.tensorflow.estimator import Estimator, RunConfig
    from horovod.tensorflow.strategy import HorovodStrategy

    strategy = HorovodStrategy()
    with tempfile.TemporaryDirectory() as own:
        made = estimator(strategy, folder=f"{own}/{hvd.rank()}", counts=True)
        tempfile.tempdir = own
        made.train(input_fn, max_steps=4)
        tempfile.tempdir = None
        assert os.listdir(own) == (["0"] if hvd.rank() == 0 else [])
        assert hvd.rank() or made.get_variable_value("rows_seen") == 0.0  # nobody ran the assignment
    by_time = Estimator(model_fn, config=RunConfig(train_distribute=strategy), params=made.params)
    with pytest.raises(ValueError, match="save_checkpoints_steps"):
        by_time.train(input_fn, max_steps=1)
    with pytest.raises(TypeError, match="no strategy of horovod"):
        Estimator(model_fn, config=RunConfig(train_distribute=tf.distribute.get_strategy()))


@in_one_start(2)
def test_without_a_strategy_each_rank_is_alone():
    import horovod.tensorflow as hvd
    import tensorflow as tf
    from horovod.tensorflow.estimator import EstimatorSpec, EvalSpec, TrainSpec, train_and_evaluate

    def reduced(features, labels, mode, params):
        if mode == "train":
            optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
            weights = tf.compat.v1.get_variable("weights", initializer=np.full([3, 1], hvd.rank() + 1.0))
            loss = tf.reduce_sum((features @ weights - labels) ** 2) / 4
            step = tf.compat.v1.train.get_global_step()
            return EstimatorSpec(mode, loss=loss, train_op=hvd.DistributedOptimizer(optimizer).minimize(loss, step))
        return model_fn(features, labels, mode, params)

    made = estimator(None)
    made._model_fn = reduced
    hooks = [hvd.BroadcastGlobalVariablesHook(0)]
    train = TrainSpec(lambda mode, input_context, params: input_fn(mode, input_context, params), 4, hooks)
    found, exported = train_and_evaluate(made, train, EvalSpec(input_fn, steps=2))
    assert exported is None
    assert found["global_step"] == 4
    assert len({weights.tobytes() for weights in hvd.allgather_object(made.get_variable_value("weights"))}) == 1
    assert len(set(hvd.allgather_object(made.model_dir))) == 2


@in_one_start(2)
def test_what_cannot_be_is_said():
    import tensorflow as tf
    from horovod.tensorflow.estimator import Estimator, EstimatorSpec, RunConfig

    for call, text in (
        (lambda: EstimatorSpec("fit", loss=1.0), "none of ModeKeys"),
        (lambda: EstimatorSpec("train", train_op=()), "needs loss="),
        (lambda: EstimatorSpec("train", loss=1.0), "needs train_op= or host_call="),
        (lambda: EstimatorSpec("train", loss=1.0, host_call=print), "no pair"),
        (lambda: RunConfig(save_checkpoints_steps=1, save_checkpoints_secs=1), "exclude each other"),
        (lambda: estimator(None).train(input_fn, steps=1, max_steps=1), "exclude each other"),
        (lambda: estimator(None).train(input_fn, steps=0), "too small"),
        (lambda: estimator(None).train(lambda data: data), "takes data, which the estimator does not give"),
        (
            lambda: estimator(None).evaluate(lambda: tf.data.Dataset.from_tensor_slices(data()).batch(2).take(0)),
            "no batch",
        ),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(TypeError, match="return an EstimatorSpec"):
        Estimator(lambda features: None).train(lambda: tf.data.Dataset.from_tensor_slices(data()), steps=1)


@pytest.mark.row("h15")
@in_one_start(2)
def test_a_program_without_eager_execution():
    import horovod.tensorflow as hvd
    import tensorflow as tf
    from horovod.tensorflow.strategy import HorovodStrategy

    strategy = HorovodStrategy(variables_on_host=True)
    with tf.Graph().as_default():  # as everywhere in such a program
        assert not tf.executing_eagerly()
        made = estimator(strategy, begin=0.25 + hvd.rank(), batch=BATCH // 2, both=True).train(input_fn, max_steps=3)
        assert made.evaluate(input_fn)["global_step"] == 3
    np.testing.assert_allclose(made.get_variable_value("weights"), one_process(3)[0], rtol=0, atol=1e-9)


@pytest.mark.row("h15")
@in_one_start(2)
def test_input_functions_over_arrays():
    import tensorflow as tf
    from horovod.tensorflow.estimator import inputs

    features, labels = data()

    def rows_of(**options):
        read = inputs.numpy_input_fn({"x": features}, labels, batch_size=5, **options)
        return [(batch["x"], of_batch) for batch, of_batch in read().as_numpy_iterator()]

    inorder = rows_of(shuffle=False, num_epochs=2)
    assert [len(x) for x, _ in inorder] == [5] * 9 + [3]
    np.testing.assert_array_equal(np.concatenate([x for x, _ in inorder]), np.tile(features, [2, 1]))
    shuffled = rows_of(shuffle=True)
    x, y = (np.concatenate(arrays) for arrays in zip(*shuffled))
    assert not np.array_equal(x, features)
    np.testing.assert_array_equal(np.sort(x, 0), np.sort(features, 0))
    np.testing.assert_allclose(y, x @ [[1.0], [-2.0], [0.5]])

    def takes_x(features, labels, mode, params):
        return model_fn(features["x"], labels, mode, params)

    made = estimator(None, minimize=True)
    made._model_fn = takes_x
    tf.compat.v1.disable_resource_variables()  # as in programs of TensorFlow 1
    try:
        made.train(inputs.numpy_input_fn({"x": features}, labels, BATCH, None, shuffle=False), steps=6)
    finally:
        tf.compat.v1.enable_resource_variables()
    assert made.get_variable_value("global_step") == 6
    np.testing.assert_allclose(made.get_variable_value("weights"), one_process(6)[0], rtol=0, atol=1e-9)
    assert made.evaluate(inputs.numpy_input_fn({"x": features}, labels, BATCH, shuffle=False))["global_step"] == 6
    for options, text in (
        ({}, "neither True nor False"),
        ({"shuffle": True, "batch_size": 0}, "too small"),
        ({"shuffle": True, "y": labels[1:]}, r"arrays of \[23, 24\] rows"),
    ):
        with pytest.raises(ValueError, match=text):
            inputs.numpy_input_fn(features, **options)
