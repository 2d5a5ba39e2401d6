# SPDX-License-Identifier: Apache-2.0
"""All dumps of a job side by side: who has which operation in flight, who lacks it, and since when."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from horovod.flight.dumps import Dump, Key, Op

# Wall clocks of two hosts may differ by this much.
CLOCK_SKEW_NS = 30 * 10**9

# (host, pid) -> "dead", "stopped", "alive", or None where that cannot be known from here.
Probe = Callable[[str, int], "str | None"]


def ranks_text(ranks: Iterable[int]) -> str:
    """
    Write a list of ranks shortly.

    >>> ranks_text([3]), ranks_text([0, 1, 2, 5]), ranks_text([0, 1])
    ('rank 3', 'ranks 0-2, 5', 'ranks 0, 1')
    """
    ranks = sorted(ranks)
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(parts)}"


class Job:
    """All dumps of a job, and what follows from them."""

    def __init__(self, dumps: dict[int, Dump], size: int | None = None, probe: Probe | None = None):
        self.dumps = dumps
        self.size = size or max((dump.size for dump in dumps.values()), default=0)
        self.probe = probe
        self.sets: dict[int, list[int]] = {}
        self.peers: dict[int, tuple[str, int]] = {}
        for dump in dumps.values():
            self.sets.update(dump.sets)
            self.peers.update(dump.peers)
            self.peers[dump.rank] = (dump.host, dump.pid)
        self.flights: dict[Key, dict[int, Op]] = {}  # what is in flight, by rank
        for rank, dump in dumps.items():
            for op in dump.pending():
                self.flights.setdefault(op.key, {})[rank] = op

    def members(self, process_set: int) -> list[int]:
        """Ranks of a process set, as far as the dumps know."""
        if process_set == 0:
            return list(range(self.size))
        known = {rank for key, ops in self.flights.items() if key[0] == process_set for rank in ops}
        return self.sets.get(process_set) or sorted(known)

    def silent(self, rank: int, key: Key) -> bool:
        """Whether the rank has said nothing since the operation began."""
        if rank not in self.dumps:
            return True
        mine = self.dumps[rank]
        others = [
            self.dumps[r].wall(op.ns.get("submitted", 0)) + (0 if self.dumps[r].boot == mine.boot else CLOCK_SKEW_NS)
            for r, op in self.flights[key].items()
            if r != rank
        ]
        return bool(others) and min(others) > mine.wall_ns

    def lacking(self, key: Key) -> set[int]:
        """Members that have not submitted the operation."""
        ops = self.flights[key]
        if any(op.agreed for op in ops.values()):
            return set()
        return set(self.members(key[0])) - set(ops)

    def begun(self, key: Key) -> int:
        """When the first rank submitted the operation."""
        return min(self.dumps[rank].wall(op.ns.get("submitted", 0)) for rank, op in self.flights[key].items())

    def oldest(self, keys: Iterable[Key]) -> Key:
        """Return the operation that waits longest."""
        return min(keys, key=lambda key: (self.begun(key), key))

    def waited(self, key: Key) -> float:
        """Seconds that somebody has waited for the operation."""
        return max(self.dumps[rank].age(op) for rank, op in self.flights[key].items())

    def past(self, key: Key) -> Op | None:
        """Return the last operation of this name that went well, on any rank."""
        done = [op for dump in self.dumps.values() for op in dump.ops if op.key == key and op.state == "done"]
        return max(done, key=lambda op: op.n, default=None)

    def who(self, rank: int) -> str:
        """Name a rank with its host and process."""
        if rank not in self.peers:
            return f"rank {rank}"
        host, pid = self.peers[rank]
        return f"rank {rank} (host {host}, pid {pid})"

    def last_words(self, rank: int) -> str:
        """Say what the rank did last, from its dump."""
        dump = self.dumps[rank]
        if not dump.whole:
            return f"{self.who(rank)}: its dump is truncated, with {len(dump.ops)} of {dump.kept} operations"
        if not dump.ops:
            return f"{self.who(rank)} has submitted nothing at all"
        op = dump.ops[-1]
        ago = dump.seconds_before(op.ns.get(op.state, dump.monotonic_ns))
        return f"{self.who(rank)}: last operation {op.label}, {op.state} {ago:.1f} s before its dump"
