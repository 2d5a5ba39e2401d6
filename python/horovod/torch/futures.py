# SPDX-License-Identifier: Apache-2.0
"""Futures of operations in flight, for what torch.distributed calls."""

from __future__ import annotations

import queue
import threading
from typing import Any, Callable

import torch


class Waiter:
    """A thread that waits for calls in flight, in their order, and completes their futures."""

    def __init__(self) -> None:
        self.closing = False
        self.left: list[Any] = []  # memory of operations that were in flight when the group was destroyed
        self._work: queue.SimpleQueue = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def future(self, wait: Callable[[], Any], keep: Any) -> torch.futures.Future:
        """Return the future of what `wait` returns or raises. `keep` is held until the operation is over."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="hvd futures", daemon=True)
            self._thread.start()
        inner: torch.futures.Future = torch.futures.Future()
        self._work.put((wait, keep, inner))
        # DDP takes an exception that a future holds for a tensor; one that a callback raises is an error to it.
        return inner.then(_value_or_raise)

    def stop(self) -> None:
        """Let calls in flight fail, and return when the thread is in none."""
        self.closing = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._work.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            wait, keep, inner = work
            try:
                inner.set_result(wait())
            except Exception as error:
                if self.closing:
                    self.left.append(keep)
                inner.set_result(error)
            del work, wait, keep, inner  # the tensors, while this thread waits


def _value_or_raise(inner: torch.futures.Future) -> Any:
    value = inner.value()
    if isinstance(value, Exception):
        raise value
    return value
