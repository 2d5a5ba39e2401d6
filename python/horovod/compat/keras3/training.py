# SPDX-License-Identifier: Apache-2.0
"""
Models: keywords of `compile` and `fit` that Keras 3 refuses, and the methods for generators.

None of the keywords changes what is computed: they are left out, with one note.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

from horovod.compat import notes

# How a generator is asked for batches; in Keras 3 the data itself says it.
_OF_DATA = ("workers", "use_multiprocessing", "max_queue_size")
# Methods for generators: their arguments by place, behind the generator, and those that the other method has otherwise.
_FIT = ("steps_per_epoch", "epochs", "verbose", "callbacks", "validation_data", "validation_steps", "validation_freq")
_GENERATORS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "fit": (_FIT, {"verbose": 1}),
    "evaluate": (("steps", "callbacks"), {"verbose": 0}),
    "predict": (("steps", "callbacks"), {"verbose": 0}),
}


def build(keras: ModuleType) -> None:
    """Build them."""
    _wrap(keras.Model, "compile", _compile)
    for method in _GENERATORS:
        _wrap(keras.Model, method, _without_workers)
        if not hasattr(keras.Model, f"{method}_generator"):
            setattr(keras.Model, f"{method}_generator", _for_generator(method))


def _wrap(model: type, method: str, bridge: Callable) -> None:
    # In the class that defines it: Keras compares a model's method with that one.
    owner = next(one for one in model.__mro__ if method in vars(one))
    setattr(owner, method, bridge(vars(owner)[method]))


def _compile(plain: Callable) -> Callable:
    @functools.wraps(plain)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "experimental_run_tf_function" in kwargs:
            del kwargs["experimental_run_tf_function"]
            notes.say("Keras 3 has no experimental_run_tf_function: leave it out of compile(...)")
        return plain(self, *args, **kwargs)

    return compile


def _without_workers(plain: Callable) -> Callable:
    @functools.wraps(plain)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not any(name in kwargs for name in _OF_DATA):
            return plain(self, *args, **kwargs)
        given = {name: kwargs.pop(name) for name in _OF_DATA if name in kwargs}
        data = args[0] if args else kwargs.get("x")
        notes.say(
            f"Keras 3 has no {', '.join(given)} in {plain.__name__}(...): give it to the data, a keras.utils.PyDataset"
        )
        if hasattr(type(data), "max_queue_size"):
            for name, value in given.items():
                setattr(data, name, value)
        return plain(self, *args, **kwargs)

    return method


def _for_generator(method: str) -> Callable:
    names, defaults = _GENERATORS[method]

    def with_generator(self: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        """Do what the method of the same name without `_generator` does."""
        notes.say(f"Keras 3 has no {method}_generator: write {method}(...)")
        return getattr(self, method)(generator, **{**defaults, **dict(zip(names, args)), **kwargs})

    with_generator.__name__ = f"{method}_generator"
    return with_generator
