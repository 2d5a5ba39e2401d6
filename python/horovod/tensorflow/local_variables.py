# SPDX-License-Identifier: Apache-2.0
"""
Variables that belong to one rank alone: their gradients are not reduced.

Variables are told apart by identity. Those of Keras 3 have no `ref()`, and stand for the tf.Variable inside them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.arguments import show


def key_of(variable: Any) -> int:
    """Return what tells a variable from all others, as long as somebody holds it."""
    return id(inner_variable(variable))


def inner_variable(variable: Any) -> Any:
    """Return the tf.Variable inside a variable of Keras 3, and everything else as it is."""
    inner = getattr(variable, "_value", None)
    return inner if isinstance(inner, tf.Variable) else variable


def path_of(variable: Any) -> str:
    """Return the name by which a program's author knows a variable."""
    return str(getattr(variable, "path", None) or getattr(variable, "name", None) or "a variable without a name")


class LocalVariables:
    """
    A set of variables, and of layers whose variables belong to it.

    A layer is asked for its variables at every use, because it may not be built yet when it is added.
    """

    def __init__(self) -> None:
        self._variables: dict[int, Any] = {}  # by key; the values keep the keys valid
        self._layers: list[Any] = []

    def add(self, variable: Any) -> None:
        """Add a variable, or a tensor that a tape watches."""
        self._variables[key_of(variable)] = inner_variable(variable)

    def add_layers(self, layers: Any) -> None:
        """Add a layer or a list of them; None adds nothing. ValueError for what is no layer."""
        if layers is None:
            return
        several = layers if isinstance(layers, (list, tuple)) else [layers]
        for layer in several:
            if not _is_layer(layer):
                raise ValueError(f"{show('local_layers', layers)}: {layer!r} is no layer: give layers of Keras")
        self._layers.extend(several)

    def which(self, variables: Iterable[Any]) -> list[bool]:
        """Return for each variable whether it is in the set."""
        if not self._variables and not self._layers:
            return [False] * len(list(variables))
        keys = set(self._variables)
        for layer in self._layers:
            keys.update(key_of(variable) for variable in layer.trainable_variables)
        return [key_of(variable) in keys for variable in variables]


def _is_layer(thing: Any) -> bool:
    # A layer's Keras has been imported, whichever it is; importing another one here would take seconds.
    if isinstance(thing, tf.Module):
        return True
    for name in ("keras", "tf_keras"):
        layers = getattr(sys.modules.get(name), "layers", None)
        if layers is not None and isinstance(thing, layers.Layer):
            return True
    return False


def split(flags: Sequence[bool], values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the values whose flag is set, and the others."""
    chosen = [value for flag, value in zip(flags, values) if flag]
    return chosen, [value for flag, value in zip(flags, values) if not flag]


def merge(flags: Sequence[bool], chosen: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Return what `split` took apart."""
    first, second = iter(chosen), iter(others)
    return [next(first) if flag else next(second) for flag in flags]
