# SPDX-License-Identifier: Apache-2.0
"""
Names that Keras 3 has elsewhere: ImageDataGenerator, keras.backend.get_value, keras.utils.np_utils and others.

A name is looked up only where Keras 3 does not find it.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Callable

# Modules of `keras` that miss names which tf.keras has: Keras 3 keeps them for it.
FULLER_IN_TF_KERAS = (
    "backend",
    "layers",
    "losses",
    "metrics",
    "preprocessing",
    "preprocessing.image",
    "preprocessing.sequence",
)

# Modules of Keras 2 and the ones that have their names today.
TODAY = {
    "preprocessing.text": "_tf_keras.keras.preprocessing.text",
    "utils.np_utils": "utils",
    "utils.generic_utils": "utils",
    "utils.vis_utils": "utils",
    "utils.data_utils": "utils",
    "utils.training_utils": "utils",
    "backend.tensorflow_backend": "backend",
    "objectives": "losses",
    "engine": "models",
    "engine.base_layer": "layers",
    "engine.topology": "layers",
    "engine.training": "models",
    "engine.sequential": "models",
    **{
        f"layers.{name}": "layers"
        for name in (
            "advanced_activations",
            "convolutional",
            "convolutional_recurrent",
            "core",
            "embeddings",
            "local",
            "merge",
            "noise",
            "normalization",
            "pooling",
            "recurrent",
            "wrappers",
            "experimental",
            "experimental.preprocessing",
        )
    },
    "initializations": "initializers",
}
# Keras, and the two modules that tf.keras is, read as an attribute and by an import statement.
_ROOTS = ("keras", "keras._tf_keras.keras", "tensorflow.keras")


def build(keras: ModuleType) -> None:
    """Build them."""
    for name in FULLER_IN_TF_KERAS:
        module = sys.modules.get(f"keras.{name}")
        if module is not None and "__getattr__" not in vars(module):
            module.__getattr__ = _lookup(module.__name__, f"keras._tf_keras.keras.{name}")
    sys.meta_path.append(_Finder())


def _lookup(here: str, there: str) -> Callable[[str], Any]:
    def __getattr__(name: str) -> Any:
        if not name.startswith("_"):
            module = importlib.import_module(there)
            if name in vars(module):
                return vars(module)[name]
        raise AttributeError(f"module {here!r} has no attribute {name!r}")

    return __getattr__


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands behind Python's own finders: asked only for modules that nobody has."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        for root in _ROOTS:
            if fullname.startswith(f"{root}.") and fullname[len(root) + 1 :] in TODAY:
                return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        root = next(root for root in reversed(_ROOTS) if module.__name__.startswith(f"{root}."))
        today = TODAY[module.__name__[len(root) + 1 :]]
        module.__getattr__ = _lookup(module.__name__, f"{'keras' if today.startswith('_') else root}.{today}")
