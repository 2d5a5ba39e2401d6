# SPDX-License-Identifier: Apache-2.0
"""Makes ranks of processes that are up: numbers, the address at which they find each other, and their token."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from horovod.ray.settings import MiniSettings
from horovod.runner import layout


class Coordinator:
    """
    The places of the ranks of one job.

    Thread safety: none.
    """

    def __init__(self, settings: MiniSettings) -> None:
        self.settings = settings
        self._processes: list[layout.Whereabouts] = []

    def register(self, process: layout.Whereabouts) -> None:
        """Add a process. Ranks of a host follow each other, hosts in the order of their first process."""
        self._processes.append(process)

    @property
    def world_size(self) -> int:
        """The number of processes."""
        return len(self._processes)

    @property
    def hostnames(self) -> list[str]:
        """Name of the host of each process."""
        return [process.name for process in self._processes]

    def seats(self, variables: Mapping[str, str]) -> list[tuple[dict[str, str], str | None]]:
        """Return the variables of each process, `variables` among them, and the token if ranks are on several hosts."""
        meeting = layout.meet(self._processes)
        token = secrets.token_hex(32) if meeting.several_hosts else None
        rendezvous = {"HOROVOD_RENDEZVOUS_ADDR": meeting.address}
        return [({**variables, **place.variables(), **rendezvous}, token) for place in meeting.places]


def in_order(seats: Sequence[tuple[dict[str, str], str | None]]) -> list[int]:
    """Return the indices of the processes in the order of their ranks."""
    return sorted(range(len(seats)), key=lambda index: int(seats[index][0]["HOROVOD_RANK"]))
