# SPDX-License-Identifier: Apache-2.0
"""What the bridges say: each thing once, and on rank 0 only."""

from __future__ import annotations

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
    # As launchers say it: the engine may not have been started yet.
    ranks = (os.environ.get(name) for name in ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"))
    if next((rank for rank in ranks if rank), "0") == "0":
        warnings.warn(text, CompatNote, stacklevel=_level_of_program())


def _level_of_program() -> int:
    # Counted from say(): above it stand the bridges and Keras.
    frame, level = sys._getframe(2), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("horovod.", "keras.")):
        frame, level = frame.f_back, level + 1
    return level
