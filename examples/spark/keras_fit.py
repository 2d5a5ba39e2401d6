# SPDX-License-Identifier: Apache-2.0
"""
A Keras network on real handwritten digits, trained by the executors of Spark.

    spark-submit --master "local[2]" examples/spark/keras_fit.py --num-proc 2
    python examples/spark/keras_fit.py --num-proc 2          # in a session of its own

A number marks each line that only several processes need. Needs pyspark, TensorFlow and scikit-learn.
"""

from __future__ import annotations

import argparse
import json

import horovod.spark
from pyspark.sql import SparkSession

TRAINING_ROWS = 1440  # 357 are left to test with


def train(epochs: int, batch: int) -> dict[str, float | int | str]:
    """Train on this rank's rows and return what this rank found. Imports are here, where the ranks are."""
    import horovod.tensorflow.keras as hvd
    import keras
    import numpy as np
    from sklearn.datasets import load_digits

    hvd.init()  # 1. join the job
    keras.utils.set_random_seed(hvd.rank())
    pictures, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    pictures, labels = (pictures[order] / 16.0).astype("float32"), labels[order]
    rows = slice(hvd.rank(), TRAINING_ROWS, hvd.size())  # 2. every rank has rows of its own
    model = keras.Sequential([keras.Input([64]), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.005))  # 3. gradients are averaged over the ranks
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # 4. all ranks start with the weights of rank 0
        hvd.callbacks.MetricAverageCallback(),  # 5. metrics are those of all ranks
    ]
    model.fit(pictures[rows], labels[rows], batch, epochs, verbose=0, callbacks=callbacks)
    _, accuracy = model.evaluate(pictures[TRAINING_ROWS:], labels[TRAINING_ROWS:], verbose=0)
    weights = float(sum(np.abs(one).sum(dtype="float64") for one in model.get_weights()))
    return {
        "rank": hvd.rank(),
        "size": hvd.size(),
        "accuracy": accuracy,
        "weights": weights,
        "keras": keras.__version__,
    }


def main() -> None:
    """Train, and print what each rank returned."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-proc", type=int, help="number of ranks (default: all slots of Spark)")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--python", help="interpreter of the ranks (default: that of Spark's workers)")
    options = parser.parse_args()
    SparkSession.builder.appName("keras_fit").getOrCreate()
    results = horovod.spark.run(
        train, args=(options.epochs, options.batch_size), num_proc=options.num_proc, executable=options.python
    )
    for result in results:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
