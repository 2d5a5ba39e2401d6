# SPDX-License-Identifier: Apache-2.0
"""Follows what the processes of an elastic job write down while it runs."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import time

Event = dict


class Diaries:
    """The diaries of all processes."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._open: dict[str, tuple[int, list[bytes]]] = {}
        self._over: set[str] = set()  # of processes that are gone
        self._members: dict[int, dict[int, int]] = collections.defaultdict(dict)
        self._newest: dict[int, int] = collections.defaultdict(int)
        self.events: list[Event] = []
        self.new: list[Event] = []  # since the last fault
        self.latest = time.monotonic()  # when the last event was read

    def generation(self, pid: int = 0) -> int:
        """Return the newest generation that a process, or any, has been in."""
        return self._newest[pid]

    def members(self) -> dict[int, int]:
        """Return the processes of the newest generation that has begun, by rank."""
        return dict(self._members[max(self._members, default=0)])

    def count(self, event: str) -> int:
        """Return how often it happened since the last fault, in the life of one process."""
        return max(collections.Counter(one["pid"] for one in self.new if one["event"] == event).values(), default=0)

    def read(self) -> None:
        """Read what is new."""
        for entry in os.scandir(self._folder):
            if entry.name.endswith(".jsonl") and entry.name not in self._open and entry.name not in self._over:
                self._open[entry.name] = (os.open(entry.path, os.O_RDONLY), [])
        for name, (file, rest) in list(self._open.items()):
            gone = not os.path.exists(f"/proc/{name.partition('.')[0]}")
            while text := os.read(file, 1 << 16):
                self._take(text, rest)
            if gone:
                os.close(file)
                del self._open[name]
                self._over.add(name)

    def _take(self, text: bytes, rest: list[bytes]) -> None:
        *lines, tail = b"".join([*rest, text]).split(b"\n")
        rest[:] = [tail]
        for line in lines:
            one = json.loads(line)
            self.events.append(one)
            self.new.append(one)
            generation, pid = one.get("generation", 0), one["pid"]
            self._newest[0] = max(self._newest[0], generation)
            self._newest[pid] = max(self._newest[pid], generation)
            if one["event"] == "enter":
                self._members[generation][one["rank"]] = pid
        self.latest = time.monotonic()
