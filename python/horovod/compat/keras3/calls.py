# SPDX-License-Identifier: Apache-2.0
"""Whether an attribute is read in order to be called: `optimizer.variables()`, and not `optimizer.variables`."""

from __future__ import annotations

import dis
import types

_LOAD_METHOD = dis.opmap.get("LOAD_METHOD")  # until Python 3.11
_LOAD_ATTR = dis.opmap["LOAD_ATTR"]
_CACHE = dis.opmap.get("CACHE")
_LOAD_CONST = dis.opmap["LOAD_CONST"]
_EXTENDED_ARG = dis.EXTENDED_ARG


def is_called(frame: types.FrameType) -> bool:
    """
    Whether the attribute that this frame reads at this moment is called right after, without arguments.

    The compiler says so: it has an instruction of its own for the attributes that are called. In what tf.function makes
    of a program the call stands as converted_call(optimizer.variables, (), ...): then the next thing is an empty tuple.

    >>> import sys
    >>> from horovod.compat.keras3 import calls
    >>> class Example:
    ...     @property
    ...     def names(self):
    ...         called = calls.is_called(sys._getframe(1))
    ...         return (lambda: "called") if called else "read"
    >>> Example().names, Example().names()
    ('read', 'called')
    """
    code = frame.f_code.co_code
    at = frame.f_lasti
    if at < 0 or at + 1 >= len(code):
        return False
    if code[at] == _LOAD_METHOD:
        return True
    if code[at] != _LOAD_ATTR:
        return False
    # From Python 3.12 on, the lowest bit of the argument tells a method from a value.
    if _LOAD_METHOD is None and code[at + 1] & 1:
        return True
    return _next_is_empty_tuple(frame.f_code, code, at + 2)


def _next_is_empty_tuple(of: types.CodeType, code: bytes, at: int) -> bool:
    high = 0
    while at + 1 < len(code):
        operation, argument = code[at], code[at + 1]
        if operation == _EXTENDED_ARG:
            high = (high | argument) << 8
        elif operation != _CACHE:
            if operation != _LOAD_CONST:
                return False
            constant = of.co_consts[high | argument]
            return isinstance(constant, tuple) and constant == ()
        at += 2
    return False
