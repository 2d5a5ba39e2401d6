# SPDX-License-Identifier: Apache-2.0
"""
Calls of the library that add and remove process sets, in a way that Ctrl-C ends: on a thread of their own.

All ranks of the job make them in the same order, so a rank makes one at a time. One that was interrupted goes on in the
background until all ranks have made theirs, and the next one waits for it.
"""

from __future__ import annotations

import os
import threading
from typing import Callable

from horovod.common.status import exception

# Guards `_last`.
_lock = threading.Lock()
_last: _Change | None = None


class _Change:
    """
    One call, and what follows on it.

    Thread safety: `over` may be waited for by anybody; `error` is read after that.
    """

    def __init__(self, call: Callable[[], int], succeeded: Callable[[], None], earlier: _Change | None) -> None:
        self._call = call
        self._succeeded = succeeded
        self._earlier = earlier
        self.over = threading.Event()
        self.error: Exception | None = None
        threading.Thread(target=self._run, name="hvd process set", daemon=True).start()

    def _run(self) -> None:
        if self._earlier is not None:
            self._earlier.over.wait()
            self._earlier = None
        code = self._call()
        if code == 0:
            self._succeeded()
        else:
            self.error = exception(code)  # here: the text is this thread's
        self.over.set()


def change(call: Callable[[], int], succeeded: Callable[[], None]) -> None:
    """Make `call` when the earlier ones are over, then `succeeded` or raise its error."""
    global _last
    with _lock:
        mine = _last = _Change(call, succeeded, _last)
    mine.over.wait()
    if mine.error is not None:
        raise mine.error


def _forget_changes() -> None:
    # Their threads are not in a forked child.
    global _lock, _last
    _lock = threading.Lock()
    _last = None


os.register_at_fork(after_in_child=_forget_changes)
