# SPDX-License-Identifier: Apache-2.0
"""What ranks dumped: ``flight.RANK.json``, lines of JSON as src/hvd/trace/flight_dump.cc writes them."""

from __future__ import annotations

import fnmatch
import json
import os
import pathlib
from collections.abc import Iterable
from dataclasses import dataclass, field

PENDING = ("submitted", "sent", "agreed", "running")
Key = tuple  # (process set, name): at most one such operation is in flight on a rank


@dataclass
class Op:
    """One operation of one rank."""

    n: int
    set: int
    name: str
    op: str
    state: str
    dtype: str = ""
    shape: list[int] = field(default_factory=list)
    reduce: str = ""
    root: int = -1
    code: int = 0
    at_fault: int = -1
    position: int = -1
    missing: list[int] = field(default_factory=list)
    ns: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """What operations of several ranks are matched by."""
        return (self.set, self.name)

    @property
    def pending(self) -> bool:
        """Whether it was not over."""
        return self.state in PENDING

    @property
    def agreed(self) -> bool:
        """Whether all members are known to have submitted it."""
        return self.state in ("agreed", "running")

    def waited(self) -> float:
        """Return the seconds from its submission to the agreement of all members; 0 if they never agreed."""
        submitted = self.ns.get("submitted", 0)
        return (self.ns.get("agreed", submitted) - submitted) / 1e9

    def is_same(self, other: Op) -> bool:
        """Whether both are parts of one operation of several ranks."""
        return self.key == other.key and self.position == other.position >= 0

    @property
    def label(self) -> str:
        """How texts call it."""
        where = f" (process set {self.set})" if self.set else ""
        return f'{self.op} "{self.name}"{where}'

    def wants(self) -> dict[str, object]:
        """Say what must be equal on all ranks, most telling first."""
        # Gathered and exchanged arrays may differ in their first dimension.
        shape = self.shape[1:] if self.op in ("ALLGATHER", "ALLTOALL") else self.shape
        return {
            "operation": self.op,
            "type": self.dtype,
            "shape": tuple(shape),
            "reduction": self.reduce,
            "root rank": self.root,
        }


@dataclass
class Dump:
    """What one rank dumped."""

    rank: int
    size: int
    pid: int
    host: str
    reason: str
    monotonic_ns: int
    wall_ns: int
    boot: str = ""
    generation: int = 0
    kept: int = 0
    submitted: int = 0
    peers: dict[int, tuple[str, int]] = field(default_factory=dict)
    sets: dict[int, list[int]] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    skipped: int = 0  # operations that changed while they were written
    whole: bool = False

    def seconds_before(self, ns: int) -> float:
        """Time from a moment of this rank's monotonic clock to the dump."""
        return (self.monotonic_ns - ns) / 1e9

    def wall(self, ns: int) -> int:
        """Turn a moment of this rank's monotonic clock into wall time."""
        return self.wall_ns - (self.monotonic_ns - ns)

    def age(self, op: Op) -> float:
        """Seconds that the operation had been in flight."""
        return self.seconds_before(op.ns.get("submitted", self.monotonic_ns))

    def pending(self) -> list[Op]:
        """Operations in flight, oldest first."""
        return [op for op in self.ops if op.pending]


def _fields(kind: type, record: dict) -> dict:
    return {key: record[key] for key in kind.__dataclass_fields__ if key in record}


def parse(lines: Iterable[str]) -> Dump:
    """Make a Dump of a file's lines. Raises ValueError if they do not begin with a header."""
    dump: Dump | None = None
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue  # The rest of a file whose writer was killed.
        if dump is None:
            if not isinstance(record, dict) or "flight" not in record:
                break
            dump = Dump(**_fields(Dump, record))
        elif "n" in record:
            dump.ops.append(Op(**_fields(Op, record)))
        elif "peer" in record:
            dump.peers[record["peer"]] = (record["host"], record["pid"])
        elif "ranks" in record:
            dump.sets[record["set"]] = record["ranks"]
        elif "end" in record:
            dump.skipped = record.get("skipped", 0)
            dump.whole = len(dump.ops) + dump.skipped >= dump.kept
    if dump is None:
        raise ValueError("it does not begin with the header of a dump")
    return dump


def read(folder: str | pathlib.Path) -> tuple[dict[int, Dump], dict[str, str]]:
    """
    Read all dumps of a folder, by rank, and say of files that could not be read why.

    Those of an earlier generation than the newest are left out. Raises OSError if the folder cannot be listed.
    """
    dumps: dict[int, Dump] = {}
    unreadable: dict[str, str] = {}
    for name in sorted(os.listdir(folder)):
        if not fnmatch.fnmatch(name, "flight.*.json"):
            continue
        try:
            text = pathlib.Path(folder, name).read_text(encoding="utf-8", errors="replace")
            dump = parse(text.splitlines())
        except OSError as error:
            unreadable[name] = error.strerror or str(error)
        except ValueError as error:
            unreadable[name] = str(error)
        except (AttributeError, TypeError, KeyError):
            unreadable[name] = "a line of it is not of the form of a dump's"
        else:
            dumps[dump.rank] = dump
    newest = max((dump.generation for dump in dumps.values()), default=0)
    return {rank: dump for rank, dump in sorted(dumps.items()) if dump.generation == newest}, unreadable


def load(folder: str | pathlib.Path) -> dict[int, Dump]:
    """Read the dumps of a folder that can be read, by rank."""
    return read(folder)[0]
