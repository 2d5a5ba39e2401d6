# SPDX-License-Identifier: Apache-2.0
"""Keras 2 under the strategies: an estimator with layers, mixed precision, and variables that all ranks read."""

from __future__ import annotations

import importlib
import os
import pathlib
import sys
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from both import with_each_strategy  # noqa: E402
from keras_training import LEGACY  # noqa: E402
from ranks import in_one_start  # noqa: E402
from test_estimator import BATCH, input_fn, one_process  # noqa: E402

STALLS = {**LEGACY, "HOROVOD_STALL_CHECK_TIME_SECONDS": "0.5", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "1"}


@pytest.mark.row("h3", "h7", "h15")
@in_one_start(2, env=LEGACY)
@with_each_strategy
def test_a_program_for_ipus_with_layers(make):
    import horovod.tensorflow as hvd
    from horovod.tensorflow import ipu
    from horovod.tensorflow.strategy import HorovodStrategy

    tf = importlib.import_module("tensorflow.compat.v1")  # after ipu, as such programs do
    if make is HorovodStrategy:
        strategy = ipu.IPUHorovodStrategy(variables_on_host=True)
    else:
        cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        strategy = ipu.IPUMultiWorkerStrategy(cluster, variables_on_host=True)
    begin = 0.25 + hvd.rank()

    def model_fn(features, labels, mode):
        first = tf.keras.initializers.constant(begin)
        dense = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer=first, dtype="float64")
        model = tf.keras.Sequential([dense])
        found = model(features)
        loss = tf.reduce_sum((found - labels) ** 2) / (BATCH // hvd.size())
        if mode == tf.estimator.ModeKeys.EVAL:
            metrics = {"mae": tf.metrics.mean_absolute_error(labels, found)}
            return ipu.IPUEstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
        optimizer, weights = tf.train.MomentumOptimizer(0.05, 0.9), model.trainable_variables
        gradients = [gradient for gradient, _ in optimizer.compute_gradients(loss, weights)]
        host_call = (lambda *all: optimizer.apply_gradients(zip(all, weights)), gradients)
        return ipu.IPUEstimatorSpec(mode, loss=loss, train_op=tf.identity(loss), host_call=host_call)

    options = ipu.IPURunConfig(ipu_options=ipu.config.IPUConfig())
    config = ipu.RunConfig(ipu_run_config=options, train_distribute=strategy)
    made = ipu.IPUEstimator(model_fn, config=config)
    made.train(lambda mode, input_context: input_fn(mode, input_context, {}), max_steps=7)
    weights, loss, error = one_process(7)
    (name,) = (name for name in made.get_variable_names() if name.endswith("kernel"))
    np.testing.assert_allclose(made.get_variable_value(name), weights, rtol=0, atol=1e-9)
    found = made.evaluate(lambda mode, input_context: input_fn(mode, input_context, {}))
    assert found["loss"] == pytest.approx(loss, abs=1e-9)
    assert found["mae"] == pytest.approx(error, abs=1e-6)


@in_one_start(2, env=LEGACY)
def test_mixed_precision_is_refused():
    import tensorflow as tf
    from horovod.tensorflow.strategy import HorovodStrategy

    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        with HorovodStrategy().scope(), pytest.raises(ValueError, match="Mixed precision is not supported with the tf"):
            tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=[2])])
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


@in_one_start(2, env=STALLS)
def test_the_report_names_the_variable_that_one_rank_saves():
    import horovod.tensorflow as hvd
    import tensorflow as tf
    from horovod.tensorflow.strategy import HorovodStrategy

    with HorovodStrategy().scope():
        model = tf.keras.Sequential([tf.keras.layers.BatchNormalization(input_shape=[2])])
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as folder:
        stderr = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            if hvd.rank() == 0:
                tf.train.Checkpoint(model=model).save(f"{folder}/model")
            else:
                hvd.allreduce(tf.ones([3]), name="next")
        except tf.errors.OpError:
            pass
        finally:
            os.dup2(stderr, 2)
        log.seek(0)
        text = log.read().decode()
    if hvd.rank() == 0:
        assert "strategy.read.batch_normalization.moving_" in text, text
