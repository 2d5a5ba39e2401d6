# SPDX-License-Identifier: Apache-2.0
"""
What must work with every TensorFlow that is supported; run by `make test-versions` on two ranks.

Plain assertions and one process per rank, so that it needs nothing but the wheel and TensorFlow.
"""

import contextlib
import pathlib
import secrets
import sys
import threading

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf


def operations():
    rank, size = hvd.rank(), hvd.size()
    x = tf.constant([1.0, 2.0]) * (rank + 1.0)
    total = size * (size + 1) / 2

    def everything(x):
        return (
            hvd.allreduce(x, op=hvd.Sum, name="sum"),
            hvd.allgather(tf.fill([rank + 1], rank), name="rows"),
            hvd.broadcast(x, root_rank=1, name="root"),
            hvd.alltoall(tf.range(size) + 10 * rank, name="all"),
            hvd.reducescatter(tf.ones([size]), op=hvd.Sum, name="part"),
            hvd.grouped_allreduce([x, tf.cast(x, tf.int64)], op=hvd.Sum, name="group"),
        )

    def check(results):
        reduced, gathered, sent, exchanged, part, group = tf.nest.map_structure(np.asarray, results)
        assert reduced.tolist() == [total, 2 * total]
        assert gathered.tolist() == [other for other in range(size) for _ in range(other + 1)]
        assert sent.tolist() == [2.0, 4.0]
        assert exchanged.tolist() == [10 * other + rank for other in range(size)]
        assert part.tolist() == [float(size)]
        assert group[0].tolist() == [total, 2 * total]
        assert group[1].tolist() == [total, 2 * total]

    check(everything(x))
    function = tf.function(everything, autograph=False)
    for _ in range(200):
        check(function(x))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        check(session.run(everything(tf.constant([1.0, 2.0]) * (rank + 1.0))))


def error_of(call):
    try:
        call()
    except tf.errors.FailedPreconditionError as error:
        return str(error)
    return "there was none"


def errors():
    def wrong():
        return hvd.allreduce(tf.zeros([2 + hvd.rank()]), name="wrong")

    for call in (wrong, tf.function(wrong, autograph=False)):
        assert "Mismatched ALLREDUCE tensor shapes" in error_of(call), error_of(call)


def many_at_once():
    with tf.Graph().as_default():
        sums = [hvd.allreduce(tf.fill([3], float(i)), op=hvd.Sum, name=f"t{i}") for i in range(500)]
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1)
        with tf.compat.v1.Session(config=config) as session:
            for _ in range(20):
                for i, result in enumerate(session.run(sums)):
                    assert result.tolist() == [i * hvd.size()] * 3


def gradients():
    x = tf.Variable([1.0, 2.0])

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x * (hvd.rank() + 1.0))
        return hvd.DistributedGradientTape(tape).gradient(loss, [x])[0]

    assert step().numpy().tolist() == [(hvd.size() + 1) / 2] * 2
    with tf.GradientTape() as tape:
        y = hvd.allreduce(x, op=hvd.Sum)
    assert tape.gradient(y, x).numpy().tolist() == [hvd.size()] * 2


def same_everywhere(variables, what):
    digest = [np.asarray(variable).tobytes() for variable in variables]
    assert all(other == digest for other in hvd.allgather_object(digest)), f"{what}: ranks have different weights"


def keras_fit():
    tf.random.set_seed(hvd.rank())
    inputs = np.random.default_rng(hvd.rank()).standard_normal((64, 4)).astype("float32")
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.Adam(0.01)
    hvd.broadcast_variables(optimizer.variables(), root_rank=0)  # as before Keras 3
    wrapped = hvd.DistributedOptimizer(optimizer)
    model.compile(loss="mse", optimizer=wrapped, experimental_run_tf_function=False)
    callbacks = [
        hvd.keras.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.keras.callbacks.MetricAverageCallback(),
        hvd.keras.callbacks.LearningRateWarmupCallback(0.01, warmup_epochs=1, steps_per_epoch=4),
    ]
    model.fit(inputs, inputs[:, :1], batch_size=16, epochs=2, verbose=0, callbacks=callbacks)
    same_everywhere(model.get_weights(), "Keras")


def v1_session():
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(hvd.rank())
        weights = tf.compat.v1.get_variable("weights", [3], use_resource=True)
        loss = tf.reduce_sum((weights - (hvd.rank() + 1.0)) ** 2)
        step = tf.compat.v1.train.get_or_create_global_step()
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.AdagradOptimizer(0.1))
        train = optimizer.minimize(loss, global_step=step)
        hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.compat.v1.train.StopAtStepHook(last_step=5)]
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            while not session.should_stop():
                _, value = session.run([train, weights])
    same_everywhere([value], "v1")


def training():
    rank, size = hvd.rank(), hvd.size()
    weights, steps = tf.Variable([float(rank), 1.0]), tf.Variable(rank, dtype=tf.int64)

    @tf.function
    def synchronize():
        hvd.broadcast_variables([weights, steps], root_rank=1)

    synchronize()
    assert weights.numpy().tolist() == [1.0, 1.0]
    assert steps.numpy() == 1

    inner = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    optimizer = hvd.DistributedOptimizer(inner, backward_passes_per_step=2)

    @tf.function
    def step():
        optimizer.minimize(lambda: tf.reduce_sum(weights) * (rank + 1.0), var_list=[weights])

    for wanted in (1.0, 1.0 - (size + 1)):
        step()
        assert weights.numpy().tolist() == [wanted] * 2

    own, shared = tf.keras.layers.Dense(rank + 1), tf.keras.layers.Dense(1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(shared(tf.ones([1, 2]))) + tf.reduce_sum(own(tf.ones([1, 2])))
    tape = hvd.PartialDistributedGradientTape(tape, local_layers=own)
    gradients = tape.gradient(loss, [*own.trainable_variables, *shared.trainable_variables])
    assert np.allclose(gradients[0], 1.0 / size)
    assert np.allclose(gradients[2], 1.0)

    layer = hvd.SyncBatchNormalization(momentum=0.0)
    layer(tf.fill([rank + 1, 3], float(rank)), training=True)
    rows = sum(range(size + 1))
    assert np.allclose(layer.moving_mean, sum(one * (one + 1) for one in range(size)) / rows)


def strategies():
    from horovod.tensorflow.strategy import HorovodStrategy, private

    assert private.missing() == []
    rank, size = hvd.rank(), hvd.size()
    strategy = HorovodStrategy()
    tf.random.set_seed(rank)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input([4]), tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.Adam(0.01), "mse")
        weight, v1 = tf.Variable(rank + 1.0), tf.compat.v1.train.MomentumOptimizer(0.5, 0.9)
    inputs = np.random.default_rng(0).standard_normal((24, 4)).astype("float32")
    model.fit(inputs, inputs[:, :1], batch_size=8, verbose=0)
    same_everywhere(model.get_weights(), "strategy")

    @tf.function
    def step():
        strategy.run(lambda: v1.apply_gradients([(tf.constant(rank + 1.0), weight)]))

    step()
    assert weight.numpy() == 1.0 - 0.5 * size * (size + 1) / 2


def estimator():
    from horovod.tensorflow.estimator import Estimator, EstimatorSpec, RunConfig
    from horovod.tensorflow.strategy import HorovodStrategy

    v1 = tf.compat.v1

    def model_fn(features, mode):
        weight = v1.get_variable("weight", initializer=hvd.rank() + 1.0)
        loss = tf.reduce_mean(weight * features)
        optimizer = v1.train.GradientDescentOptimizer(0.5)
        gradients = [gradient for gradient, _ in optimizer.compute_gradients(loss, [weight])]
        apply = (lambda gradient: optimizer.apply_gradients([(gradient, weight)]), gradients)
        return EstimatorSpec(mode, loss=loss, host_call=apply)

    made = Estimator(model_fn, config=RunConfig(train_distribute=HorovodStrategy(variables_on_host=True)))
    for steps in (2, 3):
        made.train(lambda: tf.data.Dataset.from_tensors([1.0]).repeat(), max_steps=steps)
        assert made.get_variable_value("weight") == 1.0 - 0.5 * steps


def maps_of_servers(key):
    """Yield what is in the memory of each server of a data service on this host."""
    from horovod.tensorflow.data import places

    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_text()
            if "server_process.py" in words and str(places.folder(key)) in words:
                yield (process / "maps").read_text()


def data_service():
    from horovod.tensorflow.data.compute_service import (
        ComputeService,
        TfDataServiceConfig,
        compute_worker_fn,
        exactly_once,
        tf_data_service,
    )

    rank, size = hvd.rank(), hvd.size()
    for side in ("compute", "training"):
        with contextlib.ExitStack() as stack:
            config = None
            if rank == 0:  # the ranks of the compute job are threads of this one
                key = secrets.token_bytes(32)
                service = stack.enter_context(ComputeService(1, 2, key))
                config = TfDataServiceConfig(1, 2, side, service.addresses(), key, timeout=120)
                workers = [threading.Thread(target=compute_worker_fn, args=(config, index, 2)) for index in range(2)]
                for one in workers:
                    one.start()
            config = TfDataServiceConfig.from_dict(hvd.broadcast_object(config and config.to_dict(), name="config"))
            numbers = tf.data.Dataset.range(50).map(lambda one: 2 * one)
            if side == "compute":
                read = sorted(int(one) for one in numbers.send_to_data_service(config, rank, size))
                once = exactly_once(20, lambda one: one, config, rank, size, batch_size=5)
                for batch, ids in once:
                    assert batch.numpy().tolist() == ids.tolist()
                    once.done(ids)
                assert sorted(once.marks().tolist()) == list(range(rank, 20, size))
                # Servers load the server library alone: the whole of TensorFlow takes seconds more, and needs NumPy.
                loaded = list(maps_of_servers(config.key))
                assert len(loaded) >= 2
                assert not any("numpy" in one for one in loaded)
            else:
                with tf_data_service(config, rank) as address:
                    distribute = tf.data.experimental.service.distribute("distributed_epoch", address)
                    read = sorted(int(one) for one in numbers.apply(distribute))
            assert read == list(range(0, 100, 2))
            hvd.allreduce(tf.zeros([1]), name="all have read")
            if rank == 0:
                config.compute_client().shutdown()
                for one in workers:
                    one.join()


def main() -> None:
    """Be a rank."""
    hvd.init()
    checks = (operations, errors, many_at_once, gradients, training, keras_fit, v1_session, strategies, estimator)
    for check in (*checks, data_service):
        check()
        if hvd.rank() == 0:
            print(f"TensorFlow {tf.__version__}: {check.__name__} ok", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    sys.exit(main())
