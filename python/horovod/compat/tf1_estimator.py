# SPDX-License-Identifier: Apache-2.0
"""`tf.estimator`, which TensorFlow 2.16 removed, is horovod.tensorflow.estimator in programs that ask for it."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from horovod.compat import hooks


class _Estimator(ModuleType):
    """Imports the estimator when the program uses it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python asks, not the program
            raise AttributeError(name)
        return getattr(importlib.import_module("horovod.tensorflow.estimator"), name)


def offer(tensorflow: ModuleType) -> None:
    """Give `tf` and `tf.compat.v1` the module, unless this release of TensorFlow has one."""
    _offer_to(tensorflow)
    hooks.for_compat_v1(_offer_to)


def _offer_to(module: ModuleType) -> None:
    if not hasattr(module, "estimator"):
        module.estimator = _Estimator("tensorflow.estimator", __doc__)  # type: ignore[attr-defined]
