# SPDX-License-Identifier: Apache-2.0
"""
`import keras` and `import tensorflow.keras` are tf_keras in a program of TensorFlow 1.

They have the names of Keras 2 that tf_keras has elsewhere.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from horovod.compat import hooks
from horovod.compat.keras3.moved import TODAY

# As tf.keras is in graphs, and where that misses a module: as tf_keras is.
_ROOTS = ("tf_keras.api._v1.keras", "tf_keras")


def build() -> None:
    """Have it so, except for what is there already: Keras 3, or a `tensorflow.keras`."""
    for name in ("keras", "tensorflow.keras"):
        if name not in sys.modules:
            sys.meta_path.insert(0, _Finder(name))
    hooks.after_import("tf_keras", _add_names)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds keras.layers in tf_keras: the same module under two names."""

    def __init__(self, root: str) -> None:
        self._root = root

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        # Some only ask whether it is there, and TensorFlow does so while it is imported: nothing is imported here.
        inside = fullname.startswith(f"{self._root}.") and self._found(fullname) is not None
        if fullname != self._root and not inside:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        import tensorflow  # noqa: F401  (tf_keras cannot be the first to import it)

        # Python writes this specification into the module; it is to keep its own.
        module = importlib.import_module(self._found(spec.name) or "tf_keras")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None and module.__spec__.loader_state is not None:
            module.__spec__ = module.__spec__.loader_state

    def _found(self, fullname: str) -> str | None:
        path = fullname[len(self._root) :]
        names = [root + path for root in _ROOTS]
        today = TODAY.get(path[1:], "_")
        if not today.startswith("_"):
            names.append(f"{_ROOTS[0]}.{today}")
        return next((name for name in names if _is_there(name)), None)


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a parent is missing
        return False


def _add_names() -> None:
    """Give keras its version, and keras.optimizers the optimizer around one of TensorFlow, as Keras 2 had them."""
    import tf_keras
    from tf_keras.src import backend
    from tf_keras.src.optimizers import optimizer_v1

    class TFOptimizer(optimizer_v1.TFOptimizer):
        """An optimizer of Keras that is one of tf.compat.v1 inside."""

        def __init__(self, optimizer: Any, iterations: Any = None) -> None:
            super().__init__(optimizer, iterations)
            # Or Keras's session would not initialize what the optimizer keeps.
            backend.track_tf_optimizer(self)

    for root in _ROOTS:
        optimizers = importlib.import_module(f"{root}.optimizers")
        if not hasattr(optimizers, "TFOptimizer"):
            optimizers.TFOptimizer = TFOptimizer
    importlib.import_module(_ROOTS[0]).__version__ = tf_keras.__version__  # type: ignore[attr-defined]
