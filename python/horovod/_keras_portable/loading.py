# SPDX-License-Identifier: Apache-2.0
"""Loads a model and goes on training it with a wrapped optimizer, in the state in which it was saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from horovod._keras_portable.exchange import Settings
from horovod._keras_portable.optimizer import wrap
from horovod.common.arguments import show


def load_model(
    library: ModuleType,
    filepath: Any,
    custom_optimizers: Sequence[type] | None,
    custom_objects: Mapping[str, Any] | None,
    compression: Any,
    legacy_opts: bool,
) -> Any:
    """Return the model of a file. Files have the plain optimizer in them, whichever saved it."""
    if legacy_opts:
        raise ValueError("legacy_opts=True: Keras 3 has no legacy optimizers")
    known: dict[str, Any] = {}
    for one in custom_optimizers or ():
        if not isinstance(one, type):
            raise TypeError(f"{show('custom_optimizers', one)} is no class: give classes of optimizers")
        known[one.__name__] = one
    model = library.models.load_model(filepath, custom_objects={**known, **(custom_objects or {})} or None)
    if getattr(model, "optimizer", None) is not None:
        model.optimizer = wrap(model.optimizer, Settings(compression=compression))
    return model
