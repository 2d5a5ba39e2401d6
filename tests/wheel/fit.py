# SPDX-License-Identifier: Apache-2.0
"""Fits a line with Keras on each rank."""

import pathlib

import horovod
import horovod.tensorflow.keras as hvd
import keras
import numpy as np

hvd.init()
x = np.linspace(-1, 1, 256, dtype=np.float32).reshape(-1, 1)[hvd.rank() :: hvd.size()]
model = keras.Sequential([keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
losses = model.fit(x, 3 * x, batch_size=16, epochs=3, verbose=0, callbacks=callbacks).history["loss"]
print("horovod from", pathlib.Path(horovod.__file__).parent.parent)
print("the loss fell" if losses[-1] < losses[0] else f"the loss did not fall: {losses}")
