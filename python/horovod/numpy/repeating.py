# SPDX-License-Identifier: Apache-2.0
"""
Allreduces of named arrays that a program repeats. From the third time on the engine knows all but the addresses.

A function returns None, or False, where the arguments have to be looked at first: then the call is made in full.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from horovod.common import repeated, request
from horovod.common.process_sets import ProcessSet

Key = tuple[Any, ...]


def key_of(array: Any, name: Any, op: Any, prescale: Any, postscale: Any, process_set: Any) -> Key | None:
    """Return what an allreduce is known by if it repeats."""
    if (
        type(name) is str
        and type(array) is np.ndarray
        and type(prescale) is float
        and type(postscale) is float
        and (type(op) is int or op is None)
        and type(process_set) is ProcessSet
    ):
        return (name, array.dtype, array.shape, op, prescale, postscale, process_set.process_set_id)
    return None


def _address(array: np.ndarray) -> int | None:
    try:
        # Refuses memory that is read-only, empty or not in C order.
        return ctypes.addressof(ctypes.c_char.from_buffer(array))
    except (TypeError, ValueError, BufferError):
        return None


def run(key: Key | None, array: np.ndarray, output: np.ndarray) -> bool:
    """Run it and return True. `output` may be `array`."""
    slot = repeated.take(key)
    if slot is None:
        return False
    try:
        source = _address(array)
        target = source if output is array else _address(output)
        if source is None or target is None:
            return False
        request.run_prepared(slot, source, target, (array, output))
        return True
    finally:
        repeated.give_back(key, slot)


def submit(key: Key | None, array: np.ndarray, output: np.ndarray) -> int | None:
    """Start it and return its handle; `synchronize` returns `output`, which may be `array`."""
    slot = repeated.take(key)
    if slot is None:
        return None
    try:
        source = _address(array)
        target = source if output is array else _address(output)
        if source is None or target is None:
            return None
        return request.submit_prepared(slot, source, target, (array, output), lambda _: output)
    finally:
        repeated.give_back(key, slot)
