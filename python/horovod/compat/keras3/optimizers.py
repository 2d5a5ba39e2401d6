# SPDX-License-Identifier: Apache-2.0
"""
Optimizers: `optimizer.variables()`, `optimizer.lr`, `SGD(lr=0.1)`, `optimizers.legacy.SGD(0.1)`.

`optimizer.variables` stays the list that Keras 3 makes, unless the program calls it.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any, Callable

from horovod.compat import hooks, notes
from horovod.compat.keras3.calls import is_called


class CalledList(list):
    """The list of an optimizer's variables where the program calls it. A program that keeps it has a plain list."""

    def __call__(self) -> list[Any]:
        """Return the list."""
        return list(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Have copies and pickles be plain lists."""
        return list, (list(self),)


def build(keras: ModuleType) -> None:
    """Build them."""
    # What Keras calls Optimizer has bases of its own, one of which has it all.
    base = next(one for one in keras.optimizers.Optimizer.__mro__ if "learning_rate" in vars(one))
    base.__init__ = _with_lr(base.__init__)
    if not hasattr(base, "lr"):
        base.lr = property(_learning_rate, _set_learning_rate, doc="Today it is `learning_rate`.")
    for one in [base, *_subclasses(base)]:
        if isinstance(vars(one).get("variables"), property):
            one.variables = _callable(vars(one)["variables"])
    for root in ("keras", "keras._tf_keras.keras", "tensorflow.keras"):
        name = f"{root}.optimizers.legacy"
        hooks.after_import(name, functools.partial(_build_legacy, name, keras))


def _subclasses(base: type) -> list[type]:
    direct = [one for one in base.__subclasses__() if one.__module__.startswith("keras.")]
    return [*direct, *(one for child in direct for one in _subclasses(child))]


def _callable(plain: property) -> property:
    def variables(self: Any) -> list[Any]:
        found = plain.fget(self)
        if type(found) is list and is_called(sys._getframe(1)):
            return CalledList(found)
        return found

    return property(functools.wraps(plain.fget)(variables), plain.fset, plain.fdel, plain.__doc__)


def _learning_rate(self: Any) -> Any:
    return self.learning_rate


def _set_learning_rate(self: Any, value: Any) -> None:
    self.learning_rate = value


def _with_lr(plain: Callable) -> Callable:
    @functools.wraps(plain)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if "lr" in kwargs:
            notes.say("Keras 3 calls an optimizer's lr learning_rate: write learning_rate=...")
            rate = kwargs.pop("lr")
            kwargs["learning_rate"] = float(rate) if isinstance(rate, int) else rate
            args = args[1:]
        plain(self, *args, **kwargs)

    return __init__


def _build_legacy(module: str, keras: ModuleType) -> None:
    """Let the classes of optimizers.legacy, of which Keras 3 says that they are gone, make today's."""
    legacy = sys.modules[module]
    for name, gone in list(vars(legacy).items()):
        today = getattr(keras.optimizers, name, None)
        if isinstance(gone, type) and isinstance(today, type) and not hasattr(gone, "apply_gradients"):
            setattr(legacy, name, _maker(name, gone, today))


def _maker(name: str, gone: type, today: type) -> type:
    def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:
        notes.say(f"Keras 3 has no optimizers.legacy: write keras.optimizers.{name}(...)")
        return today(*args, **kwargs)

    # It has no instances, as before.
    return type(name, (gone,), {"__new__": __new__, "__module__": gone.__module__, "__doc__": gone.__doc__})
