# SPDX-License-Identifier: Apache-2.0
"""`variable.ref()`: a key for dictionaries, as variables of TensorFlow have it."""

from __future__ import annotations

from types import ModuleType
from typing import Any


class Reference:
    """
    A variable as a key: equal to another one of the same variable only.

    >>> from horovod.compat.keras3.variables import Reference
    >>> variable = [1.0]
    >>> Reference(variable) == Reference(variable), Reference(variable) == Reference([1.0])
    (True, False)
    >>> Reference(variable).deref() is variable
    True
    """

    __slots__ = ("_variable",)

    def __init__(self, variable: Any) -> None:
        self._variable = variable

    def deref(self) -> Any:
        """Return the variable."""
        return self._variable

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and other._variable is self._variable

    def __hash__(self) -> int:
        return id(self._variable)

    def __repr__(self) -> str:
        return f"<Reference wrapping {self._variable!r}>"


def build(keras: ModuleType) -> None:
    """Build it."""
    if not hasattr(keras.Variable, "ref"):
        keras.Variable.ref = ref


def ref(self: Any) -> Reference:
    """Return a key for this variable."""
    return Reference(self)
