# SPDX-License-Identifier: Apache-2.0
"""Variables, values of all ranks, input, and what Keras does under a strategy."""

from __future__ import annotations

import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from both import with_each_strategy  # noqa: E402
from ranks import in_one_start  # noqa: E402


def values_of(variable):
    """A variable's value on every rank."""
    import horovod.tensorflow as hvd

    return [float(value) for value in hvd.allgather_object(np.asarray(variable.numpy()).sum())]


@pytest.mark.row("h1", "h2", "h3", "h4")
@in_one_start(2, 3)
@with_each_strategy
def test_variables_begin_with_the_value_of_rank_0(make):
    import horovod.tensorflow as hvd
    import tensorflow as tf

    strategy = make()
    rank, size = hvd.rank(), hvd.size()
    made = []

    @tf.function
    def later():
        if not made:
            made.append(tf.Variable(lambda: tf.fill([2], rank + 5.0)))
        return made[0].read_value()

    with strategy.scope():
        plain = tf.Variable(rank + 1.0)
        counted = tf.Variable(
            rank + 2, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM
        )
        text = tf.Variable(f"rank {rank}")
        complex_number = tf.Variable(tf.complex(1.0 + rank, 2.0))
        assert later().numpy().tolist() == [5.0, 5.0]
    assert plain.numpy() == 1.0
    assert counted.numpy() == 2 * size
    assert text.numpy().decode() == f"rank {rank}"
    assert complex_number.numpy() == 1 + 2j
    assert strategy.num_replicas_in_sync == size

    with tf.Graph().as_default(), strategy.scope(), tf.compat.v1.Session() as session:
        weight = tf.compat.v1.get_variable("weight", initializer=rank + 3.0)
        session.run(tf.compat.v1.global_variables_initializer())
        assert session.run(weight) == 3.0


@pytest.mark.row("h3", "h19")
@in_one_start(2)
@with_each_strategy
def test_values_of_all_ranks(make):
    import horovod.tensorflow as hvd
    import tensorflow as tf

    strategy = make()
    rank = hvd.rank()
    with strategy.scope():
        sums = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
        means = tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN)
        weight = tf.Variable(2.0)

    @tf.function
    def step():
        def replica():
            context = tf.distribute.get_replica_context()
            for variable in (sums, means):
                variable.assign(rank + 1.0)
            with tf.GradientTape() as tape:
                total = context.all_reduce("SUM", weight * (rank + 1.0))
            slices = tf.IndexedSlices(tf.fill([1, 2], rank + 1.0), tf.constant([rank]), tf.constant([2, 2]))
            return {
                "id": context.replica_id_in_sync_group,
                "gradient": tape.gradient(total, weight),
                "rows": context.all_gather(tf.fill([rank + 1, 1], rank), axis=0),
                "columns": context.all_gather(tf.fill([1, rank + 1], rank), axis=1),
                "sparse": tf.convert_to_tensor(context.all_reduce("MEAN", slices)),
            }

        return strategy.run(replica)

    found = step()
    assert found["id"] == rank
    assert found["gradient"] == 2 * (rank + 1.0)  # of the sum of both ranks' losses
    assert found["rows"].numpy().ravel().tolist() == found["columns"].numpy().ravel().tolist() == [0, 1, 1]
    assert found["sparse"].numpy().tolist() == [[0.5, 0.5], [1.0, 1.0]]
    assert [variable.numpy() for variable in (sums, means)] == [3.0, 1.5]

    assert strategy.reduce("SUM", rank + 1).numpy() == 3
    assert strategy.reduce(tf.distribute.ReduceOp.MEAN, float(rank)).numpy() == 0.5
    rows = tf.range(1.0, rank + 2)
    assert strategy.reduce("MEAN", rows, axis=0).numpy() == np.float32(4 / 3)
    assert strategy.gather(rows, axis=0).numpy().tolist() == [1.0, 1.0, 2.0]
    each = strategy.experimental_distribute_values_from_function(lambda context: context.replica_id_in_sync_group)
    assert strategy.experimental_local_results(each) == (rank,)
    with pytest.raises(ValueError, match="has none"):
        strategy.gather(tf.constant(1), axis=0)


@pytest.mark.row("h8", "h9")
@in_one_start(2)
@with_each_strategy
def test_input(make):
    import horovod.tensorflow as hvd
    import tensorflow as tf

    strategy = make()
    seen = []

    def mine(context):
        seen.append((context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync))
        return tf.data.Dataset.range(8).shard(context.num_input_pipelines, context.input_pipeline_id).batch(2)

    def batches(dataset):
        return [batch.numpy().tolist() for one in dataset for batch in strategy.experimental_local_results(one)]

    rank = hvd.rank()
    # A function gives the batch of one rank, a dataset that of all.
    assert batches(strategy.distribute_datasets_from_function(mine)) == [[rank, rank + 2], [rank + 4, rank + 6]]
    assert seen == [(2, rank, 2)]
    shares = hvd.allgather_object(batches(strategy.experimental_distribute_dataset(tf.data.Dataset.range(8).batch(4))))
    assert [len(batch) for share in shares for batch in share] == [2, 2, 2, 2]
    assert sorted(np.ravel(shares).tolist()) == list(range(8))
    options = tf.distribute.InputOptions(experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA)
    with pytest.raises(NotImplementedError, match="one replica"):
        strategy.distribute_datasets_from_function(mine, options)


@in_one_start(2)
def test_ranks_whose_input_ends_early_go_on_with_empty_batches():
    import horovod.tensorflow as hvd
    import tensorflow as tf
    from horovod.tensorflow.strategy import HorovodStrategy

    strategy = HorovodStrategy()
    mine = tf.data.Dataset.range(3 + 2 * hvd.rank()).batch(1)
    dataset = strategy.distribute_datasets_from_function(lambda context: mine)

    @tf.function
    def epoch():
        steps, rows = 0, tf.zeros([], tf.int64)
        for batch in dataset:
            rows += strategy.reduce("SUM", strategy.run(tf.size, (batch, tf.int64)), axis=None)
            steps += 1
        return steps, rows

    assert [int(value) for value in epoch()] == [5, 8]


@in_one_start(2)
def test_checkpoints():
    import tempfile

    import horovod.tensorflow as hvd
    import tensorflow as tf
    from horovod.tensorflow.strategy import HorovodStrategy

    strategy = HorovodStrategy()
    parent = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)

    def model():
        with strategy.scope():
            made = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])
            made.compile(tf.keras.optimizers.Adam(0.1), "mse", metrics=["mae"])
        return made

    first, second = model(), model()
    first.fit(np.ones([8, 2]), np.ones([8, 1]), batch_size=4, verbose=0)
    for rank_0_only in (True, False):
        if hvd.rank() == 0 or not rank_0_only:
            path = f"{parent}/{rank_0_only}-{hvd.rank()}"
            tf.train.Checkpoint(model=first).save(path)
            first.save(f"{path}.keras")
        hvd.barrier()
        tf.train.Checkpoint(model=second).restore(f"{parent}/{rank_0_only}-0-1").assert_existing_objects_matched()
        assert all((a == b).all() for a, b in zip(first.get_weights(), second.get_weights()))
        assert second.optimizer.iterations.numpy() == 2
        with strategy.scope():
            third = tf.keras.models.load_model(f"{parent}/{rank_0_only}-0.keras")
        assert all((a == b).all() for a, b in zip(first.get_weights(), third.get_weights()))


@in_one_start(2)
def test_statistics_of_batch_normalization_are_averaged_when_asked_for():
    import horovod.tensorflow as hvd
    import tensorflow as tf
    from horovod.tensorflow.strategy import AverageLocalVariables, HorovodStrategy

    strategy = HorovodStrategy()
    rows = np.arange(16.0).reshape(8, 2)

    def spread(callbacks, **options):
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.BatchNormalization(**options), tf.keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        model.fit(rows, rows[:, :1], batch_size=8, verbose=0, callbacks=callbacks)
        means = hvd.allgather_object(np.asarray(model.layers[0].moving_mean))
        assert len({weight.tobytes() for weight in hvd.allgather_object(np.asarray(model.layers[1].kernel))}) == 1
        return float(np.abs(means[0] - means[1]).max())

    assert spread([]) > 0.001
    assert spread([AverageLocalVariables()]) == 0.0
    assert spread([], synchronized=True) == 0.0


@in_one_start(2)
def test_gradients_are_reduced_once_with_wrappers_of_horovod():
    import horovod.tensorflow as hvd
    import tensorflow as tf
    from horovod.tensorflow.strategy import HorovodStrategy

    strategy = HorovodStrategy()
    v1, keras = tf.compat.v1.train, tf.keras.optimizers
    with strategy.scope():
        weights = [tf.Variable(0.0) for _ in range(3)]
        optimizers = [
            hvd.DistributedOptimizer(v1.GradientDescentOptimizer(1.0)),
            hvd.DistributedOptimizer(keras.SGD(1.0)),
            keras.SGD(1.0),
        ]

    @tf.function
    def step():
        def replica():
            for optimizer, weight in zip(optimizers, weights):
                with tf.GradientTape() as tape:
                    loss = weight * (hvd.rank() + 1.0)
                if optimizer is optimizers[2]:
                    tape = hvd.DistributedGradientTape(tape)
                optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

        strategy.run(replica)

    step()
    assert [weight.numpy() for weight in weights] == [-3.0, -3.0, -3.0]


@in_one_start(2)
@with_each_strategy
def test_all_ranks_skip_a_step_in_which_one_overflows(make):
    import horovod.tensorflow as hvd
    import tensorflow as tf
    from horovod.tensorflow.strategy import HorovodStrategy

    strategy = make()
    rows = np.ones([16, 2], "float32")
    rows[6] = np.inf  # of one rank's half of the second batch
    with strategy.scope():
        inner = tf.keras.optimizers.SGD(0.01)
        optimizer = tf.keras.optimizers.LossScaleOptimizer(inner, initial_scale=1024)
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        # The warning comes once per process.
        warns = hvd.rank() == 0 and make is HorovodStrategy
        with pytest.warns(UserWarning, match="jit_compile") if warns else _nothing():
            model.compile(optimizer, "mse", jit_compile=True)
            model.fit(rows, rows[:, :1] * 0, batch_size=4, shuffle=False, verbose=0)
    assert (
        hvd.allgather_object((int(inner.iterations.numpy()), float(optimizer.dynamic_scale.numpy())))
        == [(3, 512.0)] * 2
    )
    assert np.isfinite(model.get_weights()[0]).all()
    assert len({weight.tobytes() for weight in hvd.allgather_object(model.get_weights()[0])}) == 1

    # As users ask for it: Keras wraps the optimizer.
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
            model.compile(tf.keras.optimizers.SGD(0.01), "mse")
            model.fit(rows / 10, rows[:, :1] * 0, batch_size=4, shuffle=False, verbose=0)
        scaling = model.optimizer
        assert model.layers[0].compute_dtype == "float16"
        found = int(scaling.inner_optimizer.iterations.numpy()), float(scaling.dynamic_scale.numpy())
        assert hvd.allgather_object(found) == [(3, 2.0**14)] * 2
        assert len({weight.tobytes() for weight in hvd.allgather_object(model.get_weights()[0])}) == 1
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


def _nothing():
    import contextlib

    return contextlib.nullcontext()
