# SPDX-License-Identifier: Apache-2.0
"""
A pass that ends although TensorFlow would wait for ever, because a second reader comes along when nothing arrives.

A worker tells its dispatcher that a task is done. If both are killed before that arrives, the worker makes the task
again, and the reader that has seen its end never asks for it again: the pass never ends. A reader that joins the same
job under its name asks for all tasks, and then all readers get their end.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Callable

# How long nothing arrives before another reader joins; twice as long before each that follows.
FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 80.0
# How long a reader may give nothing when another one is at the end of the pass.
LAST_WAIT_S = 5.0
MOST_READERS = 4
_LOOK_S = 0.5
_HELD = 2


def read_along(read: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """
    Yield what `read()` gives in a thread; whenever a wait is long, another thread calls it, too.

    Every call of `read` must join the same pass, whose elements go to whoever asks first. The pass is over when all
    readers are at their end; once one of them is, the others have 5 s from element to element, because they may be
    those that wait for ever. What they hold then is lost. An error of the first reader is raised.

    >>> from horovod.tensorflow.data.along import read_along
    >>> list(read_along(lambda: range(3)))
    [0, 1, 2]
    """
    found: queue.Queue[tuple[str, Any]] = queue.Queue(_HELD)
    left = threading.Event()
    _start(read, found, left, first=True)
    active, over = 1, False
    limit = FIRST_WAIT_S
    since = time.monotonic()
    try:
        while active or not over:
            try:
                kind, value = found.get(timeout=_LOOK_S)
            except queue.Empty:
                waited = time.monotonic() - since
                if over and waited >= LAST_WAIT_S:
                    return
                if not over and waited >= limit and active < MOST_READERS:
                    _start(read, found, left, first=False)
                    active += 1
                    limit = min(2 * limit, LONGEST_WAIT_S)
                continue
            if kind == "error" and not over:
                raise value
            if kind == "element":
                yield value
            else:
                active -= 1
                over = over or kind == "end"
            since = time.monotonic()
    finally:
        left.set()


def _start(read: Callable[[], Iterable[Any]], found: queue.Queue, left: threading.Event, first: bool) -> None:
    words = (read, found, left, first)
    threading.Thread(target=_run, args=words, name="hvd data service reader", daemon=True).start()


def _run(read: Callable[[], Iterable[Any]], found: queue.Queue, left: threading.Event, first: bool) -> None:
    try:
        for element in read():
            if not _put(found, left, ("element", element)):
                return
    except BaseException as error:
        _put(found, left, ("error" if first else "gone", error))  # what is wrong with the service is told once
    else:
        _put(found, left, ("end", None))


def _put(found: queue.Queue, left: threading.Event, what: tuple[str, Any]) -> bool:
    """Hand something over; False if the pass was left."""
    while not left.is_set():
        try:
            found.put(what, timeout=_LOOK_S)
        except queue.Full:
            continue
        return True
    return False
