# SPDX-License-Identifier: Apache-2.0
"""`keras.backend.set_value(optimizer.lr, 0.1)`: Keras 3 keeps the function, for variables of TensorFlow alone."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any, Callable

from horovod.compat import hooks


def build(keras: ModuleType) -> None:
    """Build it, wherever tf.keras has the function."""
    for name in ("keras._tf_keras.keras.backend", "tensorflow.keras.backend"):
        hooks.after_import(name, functools.partial(_replace, name, keras.Variable))


def _replace(module: str, variable: type) -> None:
    backend = sys.modules[module]
    if hasattr(backend, "set_value"):
        backend.set_value = _for_keras_variables(backend.set_value, variable)


def _for_keras_variables(plain: Callable, variable: type) -> Callable:
    @functools.wraps(plain)
    def set_value(x: Any, value: Any) -> Any:
        return x.assign(value) if isinstance(x, variable) else plain(x, value)

    return set_value
