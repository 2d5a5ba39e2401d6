# SPDX-License-Identifier: Apache-2.0
"""
Keeps collectives out of XLA, which cannot run them.

Keras compiles training steps with XLA where a GPU is there, unless a user says otherwise. A model whose optimizer or
strategy exchanges gradients answers that it is not to be compiled.
"""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any, Callable

from horovod.tensorflow import mpi_ops

_WARNING = (
    "Horovod turned jit_compile off for this model: XLA cannot run the exchange of gradients between "
    "ranks. Give model.compile(jit_compile=False) to say so yourself."
)
_changed: set[type] = set()
_reasons: list[Callable[[Any], bool]] = []
_warned = False


def keep_out(library: ModuleType, exchanges: Callable[[Any], bool]) -> None:
    """Have models of this Keras answer False to `jit_compile` while `exchanges(model)`."""
    if exchanges not in _reasons:
        _reasons.append(exchanges)
    owner = next((one for one in library.Model.__mro__ if isinstance(vars(one).get("jit_compile"), property)), None)
    if owner is None or owner in _changed:
        return
    plain = vars(owner)["jit_compile"]

    def jit_compile(self: Any) -> Any:
        wanted = plain.fget(self)
        if not wanted or not any(reason(self) for reason in _reasons):
            return wanted
        _warn()
        return False

    owner.jit_compile = property(jit_compile, plain.fset, plain.fdel, plain.__doc__)
    _changed.add(owner)


def turn_off(model: Any) -> None:
    """Do the same for one model, before its training step is made."""
    if getattr(model, "_jit_compile", None):
        _warn()
        model._jit_compile = False


def _warn() -> None:
    global _warned
    if not _warned and mpi_ops.rank() == 0:
        warnings.warn(_WARNING, stacklevel=4)
    _warned = True
