# SPDX-License-Identifier: Apache-2.0
"""The end of a rank's data."""

from __future__ import annotations

import os
import threading

from horovod.common import abi, request
from horovod.common.operation import Operation

_NAME = b"join.noname"
# A rank joins once at a time: threads take turns.
_turn = threading.RLock()
# The last join. Where Ctrl-C ended the wait for it, it goes on, and the next call waits for the same one.
_handle = 0


def join() -> int:
    """Return the rank that joined last, when all have."""
    global _handle
    with _turn:
        if not request.in_flight(_handle):
            _handle = request.submit(Operation(abi.JOIN, 0, name=_NAME), (), lambda result: result.number)
        return request.synchronize(_handle)


def _renew_turn() -> None:
    # Another thread of the parent may have its turn, and is not in the child to end it.
    global _turn
    _turn = threading.RLock()


os.register_at_fork(after_in_child=_renew_turn)
