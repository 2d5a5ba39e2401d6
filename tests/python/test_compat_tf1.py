# SPDX-License-Identifier: Apache-2.0
"""Programs of TensorFlow 1 on today's: what is not seen in a session."""

from __future__ import annotations

import sys

import launching
import pytest
from ranks import in_one_start, on_ranks

# A process that imports TensorFlow itself sets the second one.
TF1 = {"HOROVOD_COMPAT": "tf1", "TF_USE_LEGACY_KERAS": "1"}


@pytest.mark.row("a2", "c16")
@on_ranks(2, env=TF1, preloaded="tensorflow")
def test_imports_from_keras_of_tensorflow_find_the_one_of_graphs():
    import horovod.tensorflow.keras as hvd
    import keras
    import numpy as np
    import tensorflow as tf
    import tensorflow.keras.backend as K
    from tensorflow.keras import layers
    from tensorflow.keras.optimizers import SGD

    assert K is tf.keras.backend is keras.backend
    assert keras.__version__.startswith("2.")
    assert layers.LSTM is tf.keras.layers.LSTM
    # Libraries still see today's, which has no sessions.
    assert not hasattr(vars(tf)["keras"].backend, "set_session")

    K.set_session(tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})))
    model = tf.keras.Sequential([layers.Dense(1, input_shape=(2,), kernel_initializer="ones")])
    model.compile(hvd.DistributedOptimizer(SGD(0.25)), "mse")
    # A sum of 2 on both ranks; targets 2 and 0, so the mean gradient of each weight is that of the error 1.
    model.fit(np.ones([4, 2]), np.full([4, 1], 2.0 - 2.0 * hvd.rank()), batch_size=4, verbose=0)
    assert model.get_weights()[0].ravel().tolist() == [0.5, 0.5]
    K.clear_session()


@pytest.mark.row("b2", "b6", "f15")
@in_one_start(2, env=TF1)
def test_eager_execution_with_a_configuration():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    assert not tf.executing_eagerly()
    with pytest.raises(TypeError, match=r"config=3 is no tf.ConfigProto"):
        tf.enable_eager_execution(3)
    config = tf.ConfigProto(intra_op_parallelism_threads=2, device_count={"GPU": 0})
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    tf.enable_eager_execution(config=config)
    assert tf.executing_eagerly()
    assert tf.config.threading.get_intra_op_parallelism_threads() == 2

    weight = tf.Variable([1.0 + hvd.rank()])
    optimizer = tf.train.MomentumOptimizer(0.5, 0.5)
    for step in range(2):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight) * (hvd.rank() + 1.0)
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, [weight])
        optimizer.apply_gradients(zip(gradients, [weight]), global_step=tf.train.get_or_create_global_step())
        if step == 0:
            hvd.broadcast_variables([weight], root_rank=0)
            hvd.broadcast_variables(optimizer.variables(), root_rank=0)
    # Mean gradients of 1.5 and a momentum of one half.
    assert weight.numpy().tolist() == [1.0 - 0.5 * 1.5 - 0.5 * 2.25]
    assert int(tf.train.get_global_step()) == 2


FIRST_LINE = """
import horovod.compat.tf1
import numpy as np
import tensorflow as tf
import tensorflow.compat.v1 as v1

def model_fn(features, labels, mode):
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(features["x"], 1))
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss)
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

rows = np.ones([8, 2], "float32")
read = tf.estimator.inputs.numpy_input_fn({"x": rows}, rows[:, :1], batch_size=4, num_epochs=None, shuffle=True)
config = tf.estimator.RunConfig(session_config=tf.ConfigProto(intra_op_parallelism_threads=1))
made = tf.estimator.Estimator(model_fn, config=config)
made.train(read, steps=2, hooks=[tf.estimator.StepCounterHook(1)])
assert v1.estimator.Estimator is tf.estimator.Estimator
print(tf.executing_eagerly(), made.evaluate(read, steps=1)["global_step"])
"""


@pytest.mark.row("a4", "a11")
def test_a_program_that_asks_for_it_in_its_first_line():
    result = launching.run([sys.executable, "-c", FIRST_LINE], launching.clean_environment(TF_CPP_MIN_LOG_LEVEL="3"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["False 2"]


def test_the_report_of_a_failed_rank_names_the_line(tmp_path):
    (tmp_path / "tensorflow.py").write_text("# as today's in that it has no name of TensorFlow 1\n")
    (tmp_path / "train.py").write_text("import tensorflow as tf\n\nconfig = tf.ConfigProto()\n")
    result = launching.horovodrun("-np", 2, sys.executable, tmp_path / "train.py", env={"HOROVOD_COMPAT": "0"})
    assert result.returncode == 1
    assert "write config = tf.compat.v1.ConfigProto()   or run it with --compat tf1; python -m" in result.stderr
