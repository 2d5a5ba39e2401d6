# SPDX-License-Identifier: Apache-2.0
"""Whether anything grew during a soak."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

# What the allocators of Python and C may move to and fro by.
MEMORY_SLACK = 16 << 20
MOST_DRIFT = 0.10
LEAST_SAMPLES = 6
IDLE = 0.2  # processors in use by others, up to which a machine counts as idle


@dataclass(frozen=True)
class Sample:
    """What one rank saw in a few seconds. Times are in seconds, by kind of operation."""

    private: int  # bytes of memory
    shared: int
    descriptors: int
    threads: int
    checked: int
    p50: dict[str, float] = field(default_factory=dict)
    p99: dict[str, float] = field(default_factory=dict)


def percentile(values: Sequence[float], percent: int) -> float:
    """
    Return the value that so many percent are not above.

    >>> percentile([3.0, 1.0, 2.0], 50)
    2.0
    """
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def _thirds(values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    length = max(len(values) // 3, 1)
    return values[:length], values[-length:]


@dataclass(frozen=True)
class Change:
    """Medians of the first and the last third of the time."""

    before: float
    after: float

    @staticmethod
    def of(values: Sequence[float]) -> Change:
        """Compare the thirds of a list."""
        first, last = _thirds(values)
        return Change(statistics.median(first), statistics.median(last))

    @property
    def part(self) -> float:
        """How much more, in parts of what was before."""
        return self.after / self.before - 1 if self.before else 0.0


@dataclass(frozen=True)
class Soak:
    """What came out of a soak: samples by rank, without those of the warm-up, and what went wrong at once."""

    seconds: float
    transport: str
    samples: list[list[Sample]]
    errors: list[str]
    others: float = 0.0  # processors that programs beside the soak used

    @property
    def enough(self) -> bool:
        """Whether anything can be said."""
        return bool(self.samples) and min(len(one) for one in self.samples) >= LEAST_SAMPLES

    @property
    def checked(self) -> int:
        """Return the number of results that were right."""
        return sum(samples[-1].checked for samples in self.samples if samples)

    def worst(self, what: str) -> Change:
        """Return how a count of processes changed, on the rank where it grew most."""
        changes = [Change.of([float(getattr(one, what)) for one in samples]) for samples in self.samples]
        return max(changes, key=lambda change: change.after - change.before)

    def times(self, which: str) -> dict[str, Change]:
        """Return how times changed, by kind of operation: `p50` or `p99` of all windows of all ranks."""
        found = {}
        for kind in getattr(self.samples[0][0], which):
            # By moment, over the ranks: a rank that waits for another one only shows the other's time.
            found[kind] = Change.of([statistics.median(times) for times in zip(*self._by_rank(which, kind))])
        return found

    def _by_rank(self, which: str, kind: str) -> list[list[float]]:
        return [[getattr(one, which)[kind] for one in samples] for samples in self.samples]

    @property
    def drift(self) -> float:
        """Return the change of p99 over all kinds of operations, each counting the same."""
        changes = [math.log(change.after / change.before) for change in self.times("p99").values()]
        return math.expm1(statistics.fmean(changes)) if changes else 0.0

    def problems(self) -> list[str]:
        """Say what must not be."""
        if not self.enough:
            return [*self.errors, f"there are less than {LEAST_SAMPLES} samples after the warm-up: let it run longer"]
        found = list(self.errors)
        for what in ("private", "shared"):
            memory = self.worst(what)
            if memory.after - memory.before > MEMORY_SLACK:
                found.append(f"{what} memory grew from {memory.before / 2**20:.1f} to {memory.after / 2**20:.1f} MiB")
        for what in ("descriptors", "threads"):
            count = self.worst(what)
            if count.after > count.before:
                found.append(f"{what} grew from {count.before:g} to {count.after:g}")
        if self.drift > MOST_DRIFT:
            found.append(f"p99 grew by {self.drift:.0%}{self._excuse()}")
        return found

    def _excuse(self) -> str:
        if self.others < IDLE:
            return ""
        return (
            f"; other programs used {self.others:.1f} of {os.cpu_count()} processors meanwhile, so this may be their "
            "doing: run it again on an idle machine"
        )

    def text(self) -> str:
        """Return the report, in Markdown."""
        lines = [
            f"{len(self.samples)} ranks ({self.transport}) on {os.cpu_count()} processors, {self.seconds:.0f} s: "
            f"{self.checked} results were checked.",
            "",
        ]
        if self.enough:
            lines += [*self._counts(), "", *self._latencies(), ""]
        problems = self.problems()
        lines += [f"PROBLEM: {problem}." for problem in problems] or ["Nothing grew, and no result was wrong."]
        return "\n".join(lines)

    def _counts(self) -> list[str]:
        lines = ["| of the worst rank | first third | last third |", "|---|---:|---:|"]
        for what, change in ((what, self.worst(what)) for what in ("private", "shared")):
            lines.append(f"| {what} memory | {change.before / 2**20:.1f} MiB | {change.after / 2**20:.1f} MiB |")
        for what, change in ((what, self.worst(what)) for what in ("descriptors", "threads")):
            lines.append(f"| {what} | {change.before:g} | {change.after:g} |")
        return lines

    def _latencies(self) -> list[str]:
        lines = ["| operation | p50 | then | p99 | then | change |", "|---|---:|---:|---:|---:|---:|"]
        middle = self.times("p50")
        for kind, change in self.times("p99").items():
            values = (middle[kind].before, middle[kind].after, change.before, change.after)
            cells = " | ".join(f"{value * 1e3:.2f} ms" for value in values)
            lines.append(f"| {kind} | {cells} | {change.part:+.0%} |")
        return [*lines, f"| all, each counting the same | | | | | {self.drift:+.1%} |"]

    def as_json(self) -> str:
        """Return the report for programs."""
        result = {"seconds": self.seconds, "ranks": len(self.samples), "transport": self.transport}
        if self.enough:
            result |= {
                "checked": self.checked,
                **{what: asdict(self.worst(what)) for what in ("private", "shared", "descriptors", "threads")},
                "p99_change": self.drift,
                "p99_s": {kind: asdict(change) for kind, change in self.times("p99").items()},
            }
        return json.dumps({**result, "problems": self.problems()}, indent=2)
