# SPDX-License-Identifier: Apache-2.0
"""Weights and the optimizer's state on the host, with a second CPU in the part of the accelerator."""

from __future__ import annotations

import pathlib
import sys
import threading

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

import pytest  # noqa: E402
from ranks import in_one_start  # noqa: E402

HOST, DEVICE = "/device:CPU:0", "/device:CPU:1"
# So that a gradient that waits keeps no thread from an update.
THREADS = {"TF_NUM_INTEROP_THREADS": "8"}


def with_two_devices():
    import tensorflow as tf
    from horovod.tensorflow.strategy import HorovodStrategy

    if len(tf.config.list_logical_devices("CPU")) == 1:
        raise AssertionError("TensorFlow was started with one device already")
    return HorovodStrategy(device=DEVICE, variables_on_host=True)


@pytest.mark.row("h6", "h11")
@in_one_start(2, env=THREADS)
def test_state_is_on_the_host_alone():
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = with_two_devices()
    assert strategy.extended.worker_devices[0].endswith(DEVICE)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(2)])
        model.compile(tf.keras.optimizers.Adam(0.1), "mse", metrics=["mae"])
        v1, weight = tf.compat.v1.train.MomentumOptimizer(0.1, 0.9), tf.Variable(1.0)
        counted = tf.Variable(
            0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM
        )
    model.fit(tf.ones([8, 3]), tf.ones([8, 2]), verbose=0)
    where = []

    @tf.function
    def step():
        def replica():
            with tf.GradientTape() as tape:
                product = weight * weight
            where.append(product.device)
            v1.apply_gradients([(tape.gradient(product, weight), weight)])

        strategy.run(replica)

    step()
    assert all(place.endswith(DEVICE) for place in where)
    host = [weight, v1.get_slot(weight, "momentum"), *(one.value for one in model.weights)]
    host += [one.value for one in model.optimizer.variables]
    assert len(host) == 10
    assert all(one.values[0].device.endswith(HOST) for one in host)
    assert counted.values[0].device.endswith(DEVICE)


@pytest.mark.row("h6", "h10")
@in_one_start(2, env=THREADS)
def test_an_update_comes_before_the_last_gradient():
    import horovod.tensorflow as hvd
    import numpy as np
    import tensorflow as tf

    strategy = with_two_devices()
    changed = threading.Event()

    def wait_for_the_update(gradient):
        # The first layer's gradient, which is computed last, is not there before the last layer has its update.
        assert changed.wait(30), "no gradient was applied while another was still being computed"
        return gradient

    def check(apply_to):
        with strategy.scope():
            first, last = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])
            optimizer = apply_to()

        @tf.custom_gradient
        def watched(values):
            # Without state: tf.function would put the updates behind it otherwise.
            return values, lambda gradient: tf.ensure_shape(
                tf.numpy_function(wait_for_the_update, [gradient], tf.float32, stateful=False), [2]
            )

        @tf.function
        def step():
            def replica():
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(watched(first * 1.0) * last)
                gradients = tape.gradient(loss, [first, last])
                optimizer.apply_gradients(zip(gradients, [first, last]))

            strategy.run(replica)

        begin = np.copy(last.numpy())
        changed.clear()
        over = threading.Event()

        def watch():
            while not over.wait(0.002):
                if (last.values[0].numpy() != begin).any():
                    return changed.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            step()
        finally:
            over.set()
            watcher.join()
        assert len(set(hvd.allgather_object(first.numpy().tobytes()))) == 1

    for apply_to in (
        lambda: tf.compat.v1.train.MomentumOptimizer(0.1, 0.9),
        lambda: tf.compat.v1.train.AdamOptimizer(0.1),
        lambda: tf.keras.optimizers.Adam(0.1),
    ):
        check(apply_to)
