# SPDX-License-Identifier: Apache-2.0
"""Futures of operations in flight, for what torch.distributed calls."""

from __future__ import annotations

import queue
import threading
from typing import Any, Callable

import torch


class Call:
    """
    The operations in flight for one call of the program.

    Thread safety: all. The thread that completes it first does the waiting, so a program that waits for a call does not
    wait for those that it made before.
    """

    def __init__(self, wait: Callable[[], Any], keep: Any, waiter: Waiter) -> None:
        inner: torch.futures.Future = torch.futures.Future()
        # DDP takes an exception that a future holds for a tensor; one that a callback raises is an error to it.
        self.future = inner.then(_value_or_raise)
        self._inner = inner
        self._waiter = waiter
        self._lock = threading.Lock()
        self._work: tuple[Callable[[], Any], Any] | None = (wait, keep)

    def complete(self) -> None:
        """Return when the call is over; its future has what came of it then, or is about to."""
        with self._lock:
            if self._work is None:
                return
            wait, keep = self._work
            try:
                value = wait()
            except Exception as error:
                if self._waiter.closing:
                    self._waiter.left.append(keep)
                value = error
            self._work = None
            del wait, keep  # the tensors
        self._inner.set_result(value)


class Waiter:
    """A thread that waits for calls in flight, in their order, and completes their futures."""

    def __init__(self) -> None:
        self.closing = False
        self.left: list[Any] = []  # memory of operations that were in flight when the group was destroyed
        self._work: queue.SimpleQueue = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, wait: Callable[[], Any], keep: Any) -> Call:
        """Return a call whose future is that of what `wait` returns or raises. `keep` is held until it is over."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="hvd futures", daemon=True)
            self._thread.start()
        call = Call(wait, keep, self)
        self._work.put(call)
        return call

    def stop(self) -> None:
        """Let calls in flight fail, and return when the thread is in none."""
        self.closing = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._work.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (call := self._work.get()) is not None:
            call.complete()
            del call  # the tensors of its result, while this thread waits


def _value_or_raise(inner: torch.futures.Future) -> Any:
    value = inner.value()
    if isinstance(value, Exception):
        raise value
    return value
