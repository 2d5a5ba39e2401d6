# SPDX-License-Identifier: Apache-2.0
"""Loads a model and goes on training it with a wrapped optimizer, in the state in which it was saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from horovod._keras.optimizer import exchanging, wrap
from horovod._keras.settings import Settings
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
    settings = Settings(compression=compression)
    known: dict[str, Any] = _legacy_optimizers(library) if legacy_opts else {}
    for one in custom_optimizers or ():
        if not isinstance(one, type):
            raise TypeError(f"{show('custom_optimizers', one)} is no class: give classes of optimizers")
        known[one.__name__] = one
    known.update(custom_objects or {})
    model = library.models.load_model(filepath, custom_objects=known or None)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and exchanging(optimizer) is None:
        if getattr(optimizer, "built", False) and not optimizer._trainable_variables:
            _build_from_hdf5(optimizer, model, filepath)
        model.optimizer = wrap(optimizer, settings)
    return model


def _build_from_hdf5(optimizer: Any, model: Any, filepath: Any) -> None:
    """Do what Keras 3 leaves undone: it builds the optimizer of an HDF5 file without variables, so it cannot train."""
    import h5py

    optimizer.built = False
    optimizer.build(model.trainable_variables)
    with h5py.File(filepath, "r") as file:
        group = file.get("optimizer_weights", {})
        weights = [group[name][()] for name in group.attrs["weight_names"]] if group else []
    if len(weights) == len(optimizer.variables):
        optimizer.set_weights(weights)


def _legacy_optimizers(library: ModuleType) -> dict[str, Any]:
    legacy = library.optimizers.legacy
    classes = [one for one in vars(legacy).values() if isinstance(one, type) and hasattr(one, "apply_gradients")]
    if not classes:
        raise ValueError("legacy_opts=True: Keras 3 has no legacy optimizers")
    # Keras looks built-in ones up by their names in lower case.
    return {name: one for one in classes for name in (one.__name__, one.__name__.lower())}
