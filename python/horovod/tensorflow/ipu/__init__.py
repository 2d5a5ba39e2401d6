# SPDX-License-Identifier: Apache-2.0
"""
The names of Graphcore's TensorFlow, so that its multi-worker programs change their import line only.

`from horovod.tensorflow import ipu` replaces `from tensorflow.python import ipu`. The modules inside keep their names.
The device is the one that TensorFlow has: a GPU, or the CPU. Options of IPUs have no effect.

Such programs use `tf.estimator` and the layers of Keras 2, which Graphcore's TensorFlow has. So an import of this
package adds `tf.estimator` where TensorFlow has none, and makes `tf.keras` tf_keras if that is installed and the
program has not used `tf.keras` before. HOROVOD_COMPAT=0 leaves both out.

>>> from horovod.tensorflow import ipu
>>> ipu.ipu_estimator.IPUEstimatorSpec("train", loss=0.5, train_op=()).host_call is None
True
"""

import tensorflow as tf

from horovod import compat
from horovod.compat import tf1_estimator, tf1_keras
from horovod.tensorflow.ipu import config, horovod, ipu_estimator, ipu_multi_worker_strategy, ipu_run_config, utils
from horovod.tensorflow.ipu.horovod.ipu_horovod_strategy import IPUHorovodStrategy
from horovod.tensorflow.ipu.ipu_estimator import IPUEstimator, IPUEstimatorSpec
from horovod.tensorflow.ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategy
from horovod.tensorflow.ipu.ipu_run_config import IPURunConfig, RunConfig

__all__ = [
    "IPUHorovodStrategy",
    "IPUMultiWorkerStrategy",
    "IPUEstimator",
    "IPUEstimatorSpec",
    "IPURunConfig",
    "RunConfig",
    "config",
    "horovod",
    "ipu_estimator",
    "ipu_multi_worker_strategy",
    "ipu_run_config",
    "utils",
]

if compat.mode() != "0":
    tf1_estimator.offer(tf)
    tf1_keras.prefer_keras_2(tf)
