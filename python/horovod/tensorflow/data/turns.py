# SPDX-License-Identifier: Apache-2.0
"""Ends a process that waits for ever in a round-robin pass, because another consumer of the pass does not read."""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType
from typing import Any, Callable

from horovod.tensorflow.data import checks

# How long one call of `next` must last until it counts as stuck, and when a process that reads elsewhere is told.
STUCK_S = 5.0
TELL_S = 10.0
_LOOK_S = 0.5
_DEPTH = 8


class Turns:
    """
    The watch over this process's round-robin reading. Thread safety: all methods by any thread.

    A consumer that has left may be one too few, or all may have read what they want. So nothing happens unless a thread
    stays in one call of `next` on a round-robin data set. A read inside a graph, as in Keras' `fit`, cannot be seen;
    then there is a line on stderr, and the process goes on.
    """

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail

    def incomplete(self, trouble: Callable[[], str], tell: bool) -> None:
        """Watch as long as `trouble` returns why nobody gets data; `tell` if this process reads in turn for sure."""
        words = (trouble, tell)
        threading.Thread(target=self._look, args=words, name="hvd data service turns", daemon=True).start()

    def _look(self, trouble: Callable[[], str], tell: bool) -> None:
        tell_at = time.monotonic() + TELL_S
        call, since = None, 0.0
        while True:
            time.sleep(_LOOK_S)
            now = time.monotonic()
            found = _reading()
            if found is not call:
                call, since = found, now
            stuck = call is not None and now - since >= STUCK_S
            if not stuck and not (tell and call is None and now >= tell_at):
                continue
            text = trouble()
            if not text:
                return
            if stuck:
                self._fail(text)
            print(f"hvd data service: {text}; end this process if it waits for data", file=sys.stderr, flush=True)
            tell = False


def _reading() -> FrameType | None:
    """Return the call in which a thread waits for the next element of a round-robin data set."""
    for top in sys._current_frames().values():
        frame: FrameType | None = top
        for _ in range(_DEPTH):
            if frame is None:
                break
            if frame.f_code.co_name == "_next_internal" and _in_turn(frame.f_locals.get("self")):
                return frame
            frame = frame.f_back
    return None


def _in_turn(iterator: Any) -> bool:
    dataset = getattr(iterator, "_dataset", None)
    counts = [getattr(one, "_num_consumers", None) for one in checks.chain(dataset)] if dataset is not None else []
    return any(count is not None and int(count) > 0 for count in counts)
