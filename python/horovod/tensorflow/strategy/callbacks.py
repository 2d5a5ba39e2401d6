# SPDX-License-Identifier: Apache-2.0
"""A Keras callback for models under a strategy."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class AverageLocalVariables(tf.keras.callbacks.Callback):
    """
    Averages the non-trainable variables over the ranks after each epoch.

    Give it to `fit` before callbacks that save the model. Keras 3's BatchNormalization needs it unless you create the
    layer with synchronized=True: its moving statistics cover the rows of one rank only.

    >>> import tensorflow as tf
    >>> from horovod.tensorflow.strategy import AverageLocalVariables, HorovodStrategy
    >>> with HorovodStrategy().scope():
    ...     model = tf.keras.Sequential([tf.keras.layers.BatchNormalization(), tf.keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> _ = model.fit(tf.ones([8, 2]), tf.ones([8, 1]), verbose=0, callbacks=[AverageLocalVariables()])
    """

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Average the variables."""
        self.model.distribute_strategy.average_local_variables(self.model.non_trainable_variables)
