# SPDX-License-Identifier: Apache-2.0
"""
tf.distribute strategies over the ranks of a job.

`HorovodStrategy` uses the ranks of a launcher, `MultiWorkerStrategy` the tasks of TF_CONFIG. Both behave alike in
everything else, so a program changes from one to the other in one line.

>>> import tensorflow as tf
>>> from horovod.tensorflow.strategy import HorovodStrategy
>>> strategy = HorovodStrategy()
>>> with strategy.scope():
...     weight = tf.Variable(1.0)
>>> strategy.num_replicas_in_sync >= 1
True
"""

from typing import Any

from horovod.tensorflow.strategy.strategies import HorovodStrategy, MultiWorkerStrategy

__all__ = ["HorovodStrategy", "MultiWorkerStrategy", "AverageLocalVariables"]


def __getattr__(name: str) -> Any:
    if name == "AverageLocalVariables":  # imported here because Keras takes seconds
        from horovod.tensorflow.strategy.callbacks import AverageLocalVariables

        return AverageLocalVariables
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
