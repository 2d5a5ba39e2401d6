# SPDX-License-Identifier: Apache-2.0
"""What this rank did since `init`, in numbers; the same in every framework's module."""

from __future__ import annotations

import ctypes
import json
from typing import Any

from horovod.common import abi
from horovod.common.library import load
from horovod.common.status import check


def counters() -> dict[str, Any]:
    """
    Return what this rank did since `init`: operations, bytes and times by kind and by peer, as nested dicts of numbers.

    docs/operate/monitoring.md lists the keys. Reading disturbs nothing and is possible at any time, from any thread;
    the counters begin at zero with every `init`.

    >>> import numpy as np
    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> before = hvd.counters()["operations"]["allreduce"]["completed"]
    >>> _ = hvd.allreduce(np.ones(3))
    >>> hvd.counters()["operations"]["allreduce"]["completed"] - before
    1
    """
    found = json.loads(_text(abi.COUNTERS_JSON))
    found["peers"] = {int(rank): peer for rank, peer in found["peers"].items()}
    return found


def counters_text() -> str:
    """
    Return the counters in Prometheus' text format, to answer a scrape with (`text/plain; version=0.0.4`).

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> "horovod_operations_total" in hvd.counters_text()
    True
    """
    return _text(abi.COUNTERS_PROMETHEUS)


def _text(form: int) -> str:
    library = load()
    capacity = 16384
    while True:
        text = ctypes.create_string_buffer(capacity)
        needed = ctypes.c_uint64()
        check(library.hvd_counters_text(None, form, text, capacity, ctypes.byref(needed)))
        if needed.value <= capacity:
            return text.value.decode()
        capacity = needed.value + 1024  # numbers grow meanwhile
