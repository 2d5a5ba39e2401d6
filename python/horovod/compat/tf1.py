# SPDX-License-Identifier: Apache-2.0
"""
TensorFlow 1 for a program that was written for it, on today's TensorFlow.

`import horovod.compat.tf1` in the first line of the program, or HOROVOD_COMPAT=tf1 in its environment, or
`horovodrun --compat tf1`: then the program's `tensorflow` has the names of TensorFlow 1, with their meanings then
(tf.compat.v1), and graphs and sessions instead of eager execution. Keras is tf_keras where that is installed, also for
`import keras`. Libraries see today's TensorFlow.
"""

from __future__ import annotations

import importlib.util
import os
import sys

from horovod.compat import VARIABLE, hooks

# Whether Keras 2 is there: programs of TensorFlow 1 know no other, and tf.layers is made of it.
HAS_KERAS_2 = "tf_keras" in sys.modules or importlib.util.find_spec("tf_keras") is not None


def _build() -> None:
    # Processes that this one starts are to see the same.
    os.environ[VARIABLE] = "tf1"
    if HAS_KERAS_2:
        # TensorFlow looks at it when `tf.keras` is used first.
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        from horovod.compat import keras2

        keras2.build()
    hooks.after_import("tensorflow", _bridge_tensorflow)


def _bridge_tensorflow() -> None:
    from horovod.compat import tf1_names

    tf1_names.build()


_build()
