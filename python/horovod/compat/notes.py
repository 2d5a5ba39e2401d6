# SPDX-License-Identifier: Apache-2.0
"""What the bridges say: each thing once, and on rank 0 only."""

from __future__ import annotations

import json
import os
import sys
import warnings

_said: set[str] = set()


class CompatNote(UserWarning):
    """A line of the program was written for an older TensorFlow or Keras; it works by a bridge."""


def say(text: str) -> None:
    """
    Warn about the line of the program that leads here, unless the text has been said.

    >>> import warnings
    >>> from horovod.compat import notes
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     notes.say("x is y today")
    ...     notes.say("x is y today")
    >>> [str(one.message) for one in caught]
    ['x is y today']
    """
    if text in _said:
        return
    _said.add(text)
    if _is_first():
        warnings.warn(text, CompatNote, stacklevel=_level_of_program())


def _is_first() -> bool:
    # As launchers say it: the engine may not have been started yet.
    names = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK")
    rank = next((value for value in map(os.environ.get, names) if value), None)
    return _is_first_task() if rank is None else rank == "0"


def _is_first_task() -> bool:
    """Return whether TF_CONFIG makes this process rank 0; also without it."""
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        task, chief = config.get("task", {}), config.get("cluster", {}).get("chief")
        return task.get("type", "worker") != "worker" or (not chief and int(task.get("index", 0)) == 0)
    except (ValueError, TypeError, AttributeError):  # the strategy says what is wrong with it
        return True


def _level_of_program() -> int:
    # Counted from say(): above it stand the bridges and Keras.
    frame, level = sys._getframe(2), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("horovod.", "keras.")):
        frame, level = frame.f_back, level + 1
    return level
