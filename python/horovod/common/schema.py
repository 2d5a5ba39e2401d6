# SPDX-License-Identifier: Apache-2.0
"""Which tensors a state has: ranks compare it before they exchange any, so that a difference is an error by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_ADVICE = "build the same model and optimizer on every rank before the training function begins"


class Entry(NamedTuple):
    """One tensor of a state."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


def check(own: Sequence[Entry], wanted: Sequence[Entry]) -> None:
    """Raise ValueError, with the first tensor that differs, unless this rank has the tensors of rank 0, in order."""
    for place, (mine, theirs) in enumerate(zip(own, wanted), start=1):
        if mine[1:] != theirs[1:]:
            raise ValueError(
                f"the state of this rank differs from that of rank 0: variable {place} is {mine.name!r}, {mine}, and "
                f"{theirs.name!r}, {theirs}, on rank 0; {_ADVICE}"
            )
    if len(own) != len(wanted):
        longer, where = (own, "this rank") if len(own) > len(wanted) else (wanted, "rank 0")
        first = longer[min(len(own), len(wanted))]
        raise ValueError(
            f"the state of this rank has {len(own)} variables and that of rank 0 has {len(wanted)}: {first.name!r}, "
            f"{first}, is on {where} alone; {_ADVICE}"
        )
