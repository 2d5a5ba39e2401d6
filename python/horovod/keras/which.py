# SPDX-License-Identifier: Apache-2.0
"""Which Keras the program uses: Keras 3, or tf_keras where it was imported or TF_USE_LEGACY_KERAS says so."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from horovod.common.exceptions import HorovodUnsupportedError


def _library() -> ModuleType:
    # The rule of TensorFlow for tf.keras. Nothing but the program itself imports tf_keras otherwise.
    legacy = os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
    return importlib.import_module("tf_keras" if legacy or "tf_keras" in sys.modules else "keras")


def _backend(library: ModuleType) -> str:
    config = getattr(library, "config", None)  # Keras 2 has no other backend than TensorFlow
    return config.backend() if hasattr(config, "backend") else "tensorflow"


library = _library()
backend = _backend(library)


def need_tensorflow(what: str) -> None:
    """Raise an error that says what is missing, unless Keras runs on TensorFlow."""
    if backend != "tensorflow":
        raise HorovodUnsupportedError(
            f"horovod.keras.{what} needs Keras on TensorFlow in this release, and Keras runs on {backend}: "
            "set KERAS_BACKEND=tensorflow"
        )
