# SPDX-License-Identifier: Apache-2.0
"""Sends values from rank 0 to the callbacks of RayExecutor.run."""

from __future__ import annotations

from typing import Any

_queue: Any = None


def configure(queue: Any) -> None:
    """Send what `log` gets to `queue`, a ray.util.queue.Queue; None ends that."""
    global _queue
    _queue = queue


def log(info_dict: dict[str, Any]) -> None:
    """Have the driver call its callbacks with `info_dict`. Only rank 0 does, and only with callbacks."""
    if _queue is not None:
        _queue.put(info_dict)
