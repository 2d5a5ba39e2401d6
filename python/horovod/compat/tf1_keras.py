# SPDX-License-Identifier: Apache-2.0
"""Keras 2 for programs whose graphs have layers: Keras 3 has no layers for the graphs of sessions."""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType


def prefer_keras_2(tensorflow: ModuleType) -> None:
    """
    Have `tf.keras` be tf_keras, if it is installed and the program has neither used `tf.keras` nor chosen one.

    >>> import os, types
    >>> from horovod.compat import tf1_keras
    >>> tensorflow = types.SimpleNamespace(keras=types.ModuleType("keras"))  # loaded
    >>> tf1_keras.prefer_keras_2(tensorflow)
    >>> "TF_USE_LEGACY_KERAS" in os.environ
    False
    """
    # TensorFlow reads the variable when `tf.keras` is used first, and then its loader knows.
    used = getattr(vars(tensorflow).get("keras"), "_tfll_initialized", True)
    if not used and importlib.util.find_spec("tf_keras") is not None:
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
