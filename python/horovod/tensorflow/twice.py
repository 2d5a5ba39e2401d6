# SPDX-License-Identifier: Apache-2.0
"""
Notices gradients that a tape has reduced and that a wrapped Keras optimizer is about to reduce again.

Tapes put a mark on what they return, once such an optimizer exists. What a program makes of gradients in between, such
as clipped ones, has no mark: to find those too would mean to search graphs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from horovod.common.process_sets import ProcessSet

_WARNING = (
    "gradients are reduced twice: hvd.DistributedGradientTape has reduced them, and the optimizer of "
    "hvd.DistributedOptimizer does it again. That costs twice the time, and multiplies by the number of ranks with "
    "op=hvd.Sum. Remove one of them: use tf.GradientTape alone, or do not wrap the optimizer."
)


class _State:
    looked_for = False
    warned = False


def look_for_marks() -> None:
    """Have tapes mark what they reduce: somebody will look at it."""
    _State.looked_for = True


def mark(grads: Iterable[Any], process_set: ProcessSet) -> None:
    """Remember in each gradient among whom it has been reduced."""
    if not _State.looked_for or _State.warned:
        return
    for grad in grads:
        if grad is not None:
            grad._hvd_reduced_among = process_set


def are_marked(grads: Iterable[Any], process_set: ProcessSet) -> bool:
    """Whether a tape has reduced some of them among the same ranks, and nobody was warned yet."""
    # Not by getattr, which tensors answer slowly where there is nothing.
    return not _State.warned and any(
        getattr(grad, "__dict__", {}).get("_hvd_reduced_among") is process_set for grad in grads
    )


def warn(process_set: ProcessSet) -> None:
    """Warn once in a process, and on the first rank only."""
    _State.warned = True
    if process_set.rank() == 0:
        warnings.warn(_WARNING, stacklevel=2)
