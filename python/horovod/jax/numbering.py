# SPDX-License-Identifier: Apache-2.0
"""
The numbers of ranks, as programs of JAX have them in them.

A program that JAX has made may hold the number of ranks and this rank's number as constants: the shape of a result
follows from them, and the user's function may ask for them. JAX keeps programs as long as the process lives, and a job
may start again with other ranks. Then this module has JAX forget its programs, and the next call makes them again. The
library's function refuses a program that the user has compiled and kept.
"""

from __future__ import annotations

import contextlib
import dataclasses

import jax
import numpy as np

from horovod.common import repeated
from horovod.common.basics import HorovodBasics
from horovod.common.process_sets import ranks_of

_basics = HorovodBasics()


@dataclasses.dataclass(frozen=True)
class Numbering:
    """The number of this rank, and those of the ranks of a process set."""

    set_id: int
    rank: int  # of this process in the job
    ranks: tuple[int, ...]  # of the set, by their numbers in the job

    @property
    def size(self) -> int:
        """The number of ranks in the set."""
        return len(self.ranks)

    @property
    def index(self) -> int:
        """The number of this rank in the set; 0 for a rank that is no member."""
        return self.ranks.index(self.rank) if self.rank in self.ranks else 0

    def digest(self) -> np.int64:
        """Return a number for the ranks of the set, as src/hvd/jax/collective_call.cc computes it."""
        value = 0xCBF29CE484222325
        for rank in self.ranks:
            value = ((value ^ rank) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
        return np.uint64(value).astype(np.int64)

    def is_current(self) -> bool:
        """Whether the job has these numbers now."""
        try:
            return self == _now(self.set_id)
        except ValueError:  # the set is gone, or the job
            return False

    def check(self, what: str) -> None:
        """Raise ValueError unless the job has these numbers now."""
        now = _now(self.set_id)
        if self != now:
            raise ValueError(
                f"{what}: the function was made by {self}, and this process is {now} now: make the function again, for "
                "example by another call of jax.vjp"
            )

    def __str__(self) -> str:
        return f"rank {self.rank}, with {self.size} ranks in process set {self.set_id}"


# Those that programs may hold, by process set.
_held: dict[int, Numbering] = {}


def numbering_of(set_id: int) -> Numbering:
    """Return the numbers for a program that JAX may keep. ValueError: there is no such set."""
    found = _now(set_id)
    _held[set_id] = found
    return found


def _now(set_id: int) -> Numbering:
    # A process that has yet to join a running job knows provisional numbers, and of all ranks only.
    ranks = range(_basics.size()) if set_id == 0 else ranks_of(set_id)
    return Numbering(set_id, _basics.rank(), tuple(ranks))


def _renew() -> None:
    """Have JAX forget its programs if they may hold other numbers."""
    if not all(one.is_current() for one in _held.values()):
        _held.clear()
        jax.clear_caches()
    with contextlib.suppress(ValueError):  # there is no job yet
        numbering_of(0)  # a function may ask for rank and size without an operation


repeated.on_forget(_renew)
_renew()
