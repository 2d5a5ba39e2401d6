# SPDX-License-Identifier: Apache-2.0
"""The barrier of a process set."""

from __future__ import annotations

import os
import threading
from typing import Any

from horovod.common import abi, request
from horovod.common.operation import Operation
from horovod.common.process_sets import id_of

# One name for all barriers of a set: a known name costs no negotiation. So threads take turns.
_NAME = b"barrier.noname"
_turns: dict[int, threading.RLock] = {}
# Another thread of the parent may have its turn, and is not in the child to end it.
os.register_at_fork(after_in_child=_turns.clear)


def barrier(process_set: Any) -> None:
    """Return when every rank of the set has called it."""
    identifier = id_of(process_set)
    turn = _turns.get(identifier) or _turns.setdefault(identifier, threading.RLock())
    with turn:
        try:
            request.run(Operation(abi.BARRIER, identifier, name=_NAME), ())
        except ValueError as error:
            if "same name as another" not in str(error):
                raise
            raise ValueError(
                f"barrier(): an earlier one of this rank on process set {identifier} was interrupted or timed out, and "
                "other ranks have still not called theirs. Let them do so, or call hvd.shutdown() and hvd.init()."
            ) from None
