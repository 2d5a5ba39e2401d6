# SPDX-License-Identifier: Apache-2.0
"""With HOROVOD_ELASTIC_VERIFY=1, members of an elastic job compare the arrays that they have kept bit by bit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from horovod.common import in_sync

_ADVICE = "Every rank must change the state in the same way: look for values that depend on the rank"


def enabled() -> bool:
    """Whether the user wants it."""
    return os.environ.get("HOROVOD_ELASTIC_VERIFY") == "1"


def check(arrays: Any) -> None:
    """Raise HorovodSyncError on all ranks unless they have the same bits in arrays, which are in dicts and lists."""
    in_sync.check_in_sync(list(_named(arrays, "")), "elastic.verify", advice=_ADVICE)


def _named(value: Any, path: str) -> Iterator[in_sync.Named]:
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _named(one, f"{path}.{name}" if path else str(name))
    elif isinstance(value, (list, tuple)):
        for place, one in enumerate(value):
            yield from _named(one, f"{path}[{place}]")
    elif hasattr(value, "__array__"):
        yield path, lambda: _as_array(value)


def _as_array(value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except TypeError:  # PyTorch has types that NumPy lacks, and float32 holds all their values
        return np.asarray(value.float())
