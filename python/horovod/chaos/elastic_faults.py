# SPDX-License-Identifier: Apache-2.0
"""Kinds of faults for elastic jobs, and the choice among them."""

from __future__ import annotations

import itertools
import random
import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    weight: int  # how often it is chosen; 0: only if it is asked for
    meaning: str
    signal: int = 0  # what a rank is sent
    ranks: int = 2  # that must be there

    @property
    def deadly(self) -> bool:
        """Whether a signal ends the rank at once."""
        return self.signal not in (0, signal.SIGSTOP)


KINDS = {
    "sigkill": Kind(32, "SIGKILL to a rank", signal.SIGKILL),
    "sigterm": Kind(4, "SIGTERM to a rank", signal.SIGTERM),
    "sigint": Kind(4, "SIGINT to a rank", signal.SIGINT),
    "sigsegv": Kind(6, "SIGSEGV to a rank", signal.SIGSEGV),
    "sigstop": Kind(1, "SIGSTOP to a rank", signal.SIGSTOP),
    "hang": Kind(1, "a rank hangs in the program while another one is killed, and comes back later", ranks=3),
    "hosts": Kind(1, "the host loses a slot and gets it back", ranks=3),
    "launcher": Kind(0, "SIGKILL to horovodrun at the end of the job"),
}


def describe_kinds() -> str:
    """Return a line for each kind."""
    return "\n".join(f"  {name:<12}{kind.meaning}" for name, kind in KINDS.items())


class Choice:
    """Chooses kinds of faults: those that were asked for one after the other, otherwise by their weights."""

    def __init__(self, draws: random.Random, only: tuple[str, ...], ranks: int) -> None:
        self._draws = draws
        names = [name for name in only or KINDS if name != "launcher" and KINDS[name].ranks <= ranks] or ["sigkill"]
        self._turns = itertools.cycle(names) if only else None
        self._names = names
        self._deadly = [name for name in names if KINDS[name].deadly] or ["sigkill"]

    def next(self) -> str:
        """Return the name of the next fault."""
        return next(self._turns) if self._turns is not None else self._one_of(self._names)

    def next_deadly(self) -> str:
        """Return the name of a fault that ends a rank at once."""
        return self._one_of(self._deadly)

    def _one_of(self, names: list[str]) -> str:
        return self._draws.choices(names, [KINDS[name].weight for name in names])[0]
