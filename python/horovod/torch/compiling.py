# SPDX-License-Identifier: Apache-2.0
"""Functions that torch.compile leaves alone."""

from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar

import torch

try:
    from torch._C._dynamo import eval_frame as _frames
except ImportError:
    _frames = None  # type: ignore[assignment]

F = TypeVar("F", bound=Callable)

# PyTorch 2.1 has torch.compiler, but not this function of it.
_compiling = getattr(torch.compiler, "is_compiling", lambda: False)
# What compiled code calls outside of a graph is compiled, too, and PyTorch 2.11 fails in the optimizer's properties.
_would_compile = getattr(_frames, "get_eval_frame_callback", lambda: None)


def eager(function: F) -> F:
    """
    Have a function run as it is inside compiled code, too: it splits a graph in two.

    Marking it by torch.compiler.disable at once would import the compiler with this package, which takes a second.
    """
    disabled: Callable | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal disabled
        if _compiling():
            return _outside(function, args, kwargs)
        if not _would_compile():
            return function(*args, **kwargs)
        if disabled is None:
            disabled = torch.compiler.disable(function)
        return disabled(*args, **kwargs)

    return call  # type: ignore[return-value]


def _outside(function: Callable, args: tuple, kwargs: dict) -> Any:
    return torch.compiler.disable(function)(*args, **kwargs)


# The mark that the compiler itself puts on functions: it must not look into this one.
_outside._torchdynamo_disable = True  # type: ignore[attr-defined]
