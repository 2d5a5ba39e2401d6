# SPDX-License-Identifier: Apache-2.0
"""Keras 2 for programs whose graphs have layers: Keras 3 has no layers for the graphs of sessions."""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType
from typing import Any


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


class _Missing(ModuleType):
    """A module whose names need Keras 2."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.__name__}.{name} needs Keras 2, which is not installed: {self.__doc__}")


def explain_what_is_missing(v1: ModuleType) -> None:
    """
    Have the modules of tf.compat.v1 that are made of Keras 2 say so; TensorFlow's own text names no package.

    >>> import types
    >>> from horovod.compat import tf1_keras
    >>> v1 = types.SimpleNamespace(__version__="2.21.0", nn=types.ModuleType("nn"))
    >>> tf1_keras.explain_what_is_missing(v1)
    >>> v1.layers.dense
    Traceback (most recent call last):
        ...
    AttributeError: tf.layers.dense needs Keras 2, which is not installed: pip install tf_keras~=2.21.0
    """
    version = ".".join(v1.__version__.split(".")[:2])
    for owner, name in ((v1, "layers"), (v1.nn, "rnn_cell")):
        full = f"tf.{name}" if owner is v1 else f"tf.nn.{name}"
        setattr(owner, name, _Missing(full, f"pip install tf_keras~={version}.0"))
