# SPDX-License-Identifier: Apache-2.0
"""Programs of TensorFlow 1 on today's: what is not seen in a session."""

from __future__ import annotations

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
