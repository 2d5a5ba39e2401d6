# SPDX-License-Identifier: Apache-2.0
"""
A wrapped optimizer is saved as the optimizer that it wraps.

Files then load where this package is not installed, and Keras finds the class without being told.
"""

from __future__ import annotations

import importlib
from typing import Any

from horovod._keras.families import library_of


def public_names(base: type) -> dict[str, Any]:
    """Return the attributes by which tf_keras finds the public name of a class: they are not inherited."""
    return {name: value for name, value in vars(base).items() if name.endswith("_api_names")}


def save_as(wrapped: type, base: type) -> None:
    """Have Keras write the base's name where it meets the wrapped class."""
    library = library_of(base).__name__
    known = [
        (f"{library}.src.api_export", "REGISTERED_OBJS_TO_NAMES"),
        (f"{library}.src.saving.object_registration", "GLOBAL_CUSTOM_NAMES"),
        (f"{library}.src.saving.object_registration", "_GLOBAL_CUSTOM_NAMES"),
    ]
    found = bool(public_names(base))
    for module, table in known:
        try:
            names = getattr(importlib.import_module(module), table)
        except (ImportError, AttributeError):
            continue
        if base in names:
            names[wrapped] = names[base]
            found = True
    if not found:
        # Keras writes the module and the name of a class that it does not know: those of the base lead to it.
        wrapped.__module__ = base.__module__
