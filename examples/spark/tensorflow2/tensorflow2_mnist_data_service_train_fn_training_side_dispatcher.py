# SPDX-License-Identifier: Apache-2.0
"""The train function of tensorflow2_mnist_data_service.py."""

from __future__ import annotations

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service
from sklearn.datasets import load_digits


def train_fn(compute_config: TfDataServiceConfig, reuse_dataset: bool = False, round_robin: bool = False) -> None:
    """Train on all ranks of this job; the steps up to `batch` run in the compute job."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()

    pictures, labels = load_digits(return_X_y=True)
    pictures = (pictures / 16.0).reshape(-1, 8, 8, 1).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((pictures, labels.astype(np.int64)))

    together = {"job_name": "digits"} if reuse_dataset else {}
    if round_robin:
        together.update(consumer_index=rank, num_consumers=size)
    with tf_data_service(compute_config, rank) as address:
        dataset = (
            dataset.repeat()
            .shuffle(10000)
            .batch(64)
            .apply(tf.data.experimental.service.distribute("distributed_epoch", address, **together))
            .prefetch(tf.data.experimental.AUTOTUNE)
        )
        fit(dataset)


def fit(dataset: tf.data.Dataset) -> None:
    """Train with the batches of a data set."""
    model = tf.keras.Sequential(
        [
            tf.keras.Input([8, 8, 1]),
            tf.keras.layers.Conv2D(16, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.001 * hvd.size())),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ]
    history = model.fit(dataset, steps_per_epoch=24 // hvd.size(), epochs=6, callbacks=callbacks, verbose=0)
    print(f"rank {hvd.rank()} of {hvd.size()}: accuracy {history.history['accuracy'][-1]:.3f}")
