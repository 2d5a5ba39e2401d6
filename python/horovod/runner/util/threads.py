# SPDX-License-Identifier: Apache-2.0
"""Threads that run one function."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any, Callable


def in_thread(
    target: Callable[..., Any],
    args: Sequence[Any] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """
    Run a function in a thread of its own, and return the started thread.

    `silent` drops what the function raises; otherwise Python prints it. A daemon does not hold the program's end.

    >>> from horovod.runner.util.threads import in_thread
    >>> seen = []
    >>> in_thread(seen.append, args=(1,)).join()
    >>> seen
    [1]
    """
    if not callable(target):
        raise TypeError(f"target={target!r} is no function: give what the thread is to call")
    if not isinstance(args, (tuple, list)):
        raise ValueError(f"args={args!r} must be a tuple: a single argument is args=(argument,)")

    def run() -> None:
        with contextlib.suppress(Exception) if silent else contextlib.nullcontext():
            target(*args)

    thread = threading.Thread(target=run, name=name, daemon=daemon)
    thread.start()
    return thread
