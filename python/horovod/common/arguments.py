# SPDX-License-Identifier: Apache-2.0
"""
Checks of arguments that the operations of all frameworks have in common.

A failure names the argument, shows what was given and says what is allowed: TypeError for a wrong kind of thing,
ValueError for a wrong value. ctypes would cut numbers to 32 bits and text at the first NUL without a word, so whatever
goes into a C struct passes here first.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

_SHOWN = 200


def show(argument: str, value: Any) -> str:
    """Return `argument=value` for a message, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print whole numbers of thousands of digits
        text = f"a {type(value).__name__}"
    return f"{argument}={text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"


def whole_number(argument: str, value: Any, allowed: str) -> int:
    """Return `value` as an int. Neither a boolean nor a float is one, also where Python would let it pass."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{show(argument, value)} is not a whole number: give {allowed}")


def root_rank(value: Any) -> int:
    """Return the rank of a root. Whether the job has it, the library says."""
    rank = value if type(value) is int else whole_number("root_rank", value, "a whole number, 0 or more")
    if not 0 <= rank < 2**31:
        raise ValueError(f"{show('root_rank', value)}: invalid root rank {rank}: give a whole number, 0 or more")
    return rank


def factors(prescale_factor: Any, postscale_factor: Any) -> tuple[float, float]:
    """Return both factors as finite floats."""
    # Only a finite number less itself is zero. On every reduction's way, so without a call.
    if (
        type(prescale_factor) is float
        and type(postscale_factor) is float
        and prescale_factor - prescale_factor == 0.0 == postscale_factor - postscale_factor
    ):
        return prescale_factor, postscale_factor
    return _factor("prescale_factor", prescale_factor), _factor("postscale_factor", postscale_factor)


def _factor(argument: str, value: Any) -> float:
    # A 0-d array is a number, too; float() alone would also take text, and arrays with one element.
    if not isinstance(value, numbers.Real) and getattr(value, "shape", None) != ():
        raise TypeError(f"{show(argument, value)} is no real number: give a finite number")
    try:
        factor = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{show(argument, value)} is no real number: give a finite number") from None
    except OverflowError:
        factor = math.inf
    if not math.isfinite(factor):
        raise ValueError(f"{show(argument, value)} cannot be multiplied with: give a finite number")
    return factor


def splits(value: Any) -> tuple[int, ...]:
    """Return the rows for every rank. Whether there is one per rank, and enough rows, the library says."""
    allowed = "give one whole number, 0 or more, per rank of the process set"
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        raise ValueError(f"{show('splits', value)} is not one-dimensional: {allowed}") from None
    if array.ndim != 1:
        raise ValueError(f"{show('splits', value)} has {array.ndim} dimensions instead of 1: {allowed}")
    if array.size == 0:
        raise ValueError(f"{show('splits', value)} is empty: {allowed}")
    if array.dtype.kind not in "iu" and not (array.dtype.kind == "O" and all(type(one) is int for one in array)):
        raise ValueError(f"{show('splits', value)} holds {array.dtype} instead of int32: {allowed}")
    rows = tuple(array.tolist())
    if min(rows) < 0 or max(rows) >= 2**31:
        raise ValueError(f"{show('splits', value)} holds a number that is negative or too large for int32: {allowed}")
    return rows


def tensor_list(function: str, value: Any) -> Sequence[Any]:
    """Return the tensors of a group as they were given."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{function}: {show('tensors', value)} is a {type(value).__name__}: give a list of tensors")
    return value


def name_bytes(name: Any) -> bytes:
    """Return a name as it travels."""
    if not isinstance(name, str):
        raise TypeError(f"{show('name', name)} is no text: give a str, equal on all ranks, or None")
    if "\0" in name:
        raise ValueError(f"{show('name', name)} contains a NUL character: give a name without")
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{show('name', name)} cannot be written in UTF-8: give a name without surrogates") from None
