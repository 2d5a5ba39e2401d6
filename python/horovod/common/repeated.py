# SPDX-License-Identifier: Apache-2.0
"""
Requests of named operations that a program repeats, by what the program says of them.

An operation that comes for the second time is made known to the engine, and costs little more than itself from then on.
"""

from __future__ import annotations

from typing import Any, Callable

from horovod.common import request
from horovod.common.operation import Operation, Slot

# The engine keeps what it was told until it ends, so names that change in every step must not fill it.
_KEPT = 4096

# Requests that are free, by what the program says: none while a thread, or a signal handler's caller, uses it.
known: dict[tuple[Any, ...] | None, list[Slot]] = {}
_once: set[tuple[Any, ...]] = set()
_life = 0
_listeners: list[Callable[[], None]] = []


def learn(key: tuple[Any, ...], operation: Operation) -> None:
    """Take note of an operation. `key` says all about it, its name included, but the addresses."""
    if key not in _once:
        if len(_once) >= _KEPT:
            _once.clear()
        _once.add(key)
    elif len(known) < _KEPT and key not in known:
        known[key] = [request.prepare(operation)]


def take(key: tuple[Any, ...] | None) -> Slot | None:
    """Return the request of an operation that repeats, or None where there is none. The caller gives it back."""
    free = known.get(key)
    if not free:
        return None
    try:
        return free.pop()
    except IndexError:  # another thread was faster
        return None


def give_back(key: tuple[Any, ...] | None, slot: Slot) -> None:
    """Let the next operation of that key use the request."""
    free = known.get(key)
    if free is not None:
        free.append(slot)


def life() -> int:
    """Return a number that changes whenever requests that were prepared lose their meaning."""
    return _life


def forget() -> None:
    """Take note that another engine has started, or that the id of a process set has another meaning."""
    global _life
    _life += 1
    known.clear()
    _once.clear()
    for listener in _listeners:
        listener()


def on_forget(listener: Callable[[], None]) -> None:
    """Call a function, too, whenever `forget` is called: for bindings that keep more than requests."""
    _listeners.append(listener)
