# SPDX-License-Identifier: Apache-2.0
"""
What timelines say in numbers: ``python -m horovod.timeline report t.json t.1.json``.

A step lasts from one submission of the step's first operation to the next one. In it a rank *computes* while none of
its operations is pending, *waits* while its operations wait for other ranks alone, and is *on the wire* while data of
an operation moves. Operations that overlap with computing count as waiting or wire: only time in which nothing is
pending is called computing.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

Event = dict
Span = "tuple[float, float]"

_PREFIX = "NEGOTIATE_"
_CHECK = re.compile(r"in_sync(\.(sz|t))?$")  # operations of check_in_sync, by hvd itself or by the program
_SLOWEST = 10


@dataclasses.dataclass(frozen=True)
class Operation:
    """One run of an operation on one rank; times in microseconds of the common clock."""

    name: str
    kind: str
    rank: int
    submitted: float
    agreed: float
    done: float
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Step:
    """The parts of one step of one rank, in microseconds."""

    begin: float
    end: float
    compute: float
    wait: float
    wire: float

    @property
    def length(self) -> float:
        """Return the time from its begin to that of the next one."""
        return self.end - self.begin


@dataclasses.dataclass(frozen=True)
class Slow:
    """An operation with its mean times in microseconds."""

    name: str
    detail: str
    count: int
    wait: float
    wire: float

    @property
    def total(self) -> float:
        """Return the time of all its runs, so that what every step does comes before what runs once."""
        return self.count * (self.wait + self.wire)


@dataclasses.dataclass
class Report:
    """All that text and page show."""

    operations: dict[int, list[Operation]]  # by rank, in the order of their submission
    steps: dict[int, list[Step]]  # by rank
    marker: str  # the operation that begins a step
    last: Counter[int]  # how often each rank was the last to submit an operation that all have submitted
    late: dict[int, float]  # by rank: mean microseconds after the second to last, when it was last
    slowest: list[Slow]

    def mean_shares(self, rank: int) -> tuple[float, float, float]:
        """Return the shares of compute, wait and wire in the steps of a rank; zeros if it has none."""
        total = sum(step.length for step in self.steps[rank])
        if total <= 0:
            return 0.0, 0.0, 0.0
        parts = ([step.compute, step.wait, step.wire] for step in self.steps[rank])
        compute, wait, wire = (sum(column) / total for column in zip(*parts))
        return compute, wait, wire


def operations_of(events: Sequence[Event], rank: int, shift: float) -> list[Operation]:
    """Return the program's operations of one file. `shift` is what its times lack to the common clock."""
    names: dict[int, str] = {}
    open_phases: dict[int, tuple[str, float]] = {}
    agreed: dict[int, tuple[float, float]] = {}
    found = []
    for event in events:
        pid, phase = event.get("pid", 0), event.get("ph")
        if phase == "M" and event.get("name") == "process_name":
            names[pid] = event["args"].get("name", "")
        elif phase == "B":
            open_phases[pid] = event["name"], event["ts"] + shift
        elif phase == "E" and pid in open_phases:
            (kind, begun), ended = open_phases.pop(pid), event["ts"] + shift
            if kind.startswith(_PREFIX):
                agreed[pid] = begun, ended
                continue
            submitted, since = agreed.pop(pid, (begun, begun))
            if _CHECK.search(names.get(pid, "")):
                continue
            arguments = event.get("args", {})
            detail = f"{arguments.get('dtype', '')} {arguments.get('shape', '')}".strip()
            variable = f" ({arguments['variable']})" if "variable" in arguments else ""
            found.append(Operation(names.get(pid, "") + variable, kind, rank, submitted, since, ended, detail))
    return sorted(found, key=lambda operation: operation.submitted)


def analyze(operations: Iterable[Operation]) -> Report:
    """
    Return the report of the operations of all ranks.

    >>> a = [Operation("g", "ALLREDUCE", 0, 10.0 * i, 10.0 * i + 2, 10.0 * i + 5) for i in range(3)]
    >>> report = analyze(a)
    >>> [(step.compute, step.wait, step.wire) for step in report.steps[0]]
    [(5.0, 2.0, 3.0), (5.0, 2.0, 3.0)]
    """
    by_rank: dict[int, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_rank[operation.rank].append(operation)
    ranks = sorted(by_rank)
    marker = _marker(by_rank[ranks[0]]) if ranks else ""
    last, late = _last_ones(by_rank)
    return Report(
        operations={rank: by_rank[rank] for rank in ranks},
        steps={rank: _steps(by_rank[rank], marker) for rank in ranks},
        marker=marker,
        last=last,
        late=late,
        slowest=_slowest(by_rank),
    )


def _marker(operations: Sequence[Operation]) -> str:
    """Return the operation that comes most often; of several the first one."""
    counts = Counter(operation.name for operation in operations)
    return max(counts, key=lambda name: counts[name]) if counts else ""  # in the order of their first submission


def _steps(operations: Sequence[Operation], marker: str) -> list[Step]:
    begins = [operation.submitted for operation in operations if operation.name == marker]
    waits = _union((one.submitted, one.agreed) for one in operations)
    wires = _union((one.agreed, one.done) for one in operations)
    both = _union([*waits, *wires])
    steps = []
    for begin, end in zip(begins, begins[1:]):
        wire, busy = _within(wires, begin, end), _within(both, begin, end)
        steps.append(Step(begin, end, compute=end - begin - busy, wait=busy - wire, wire=wire))
    return steps


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


def _within(spans: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    return sum(max(0.0, min(end, to) - max(begin, since)) for since, to in spans)


def _last_ones(by_rank: dict[int, list[Operation]]) -> tuple[Counter[int], dict[int, float]]:
    together: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    for rank, operations in by_rank.items():
        runs: Counter[str] = Counter()
        for operation in operations:
            together[operation.name, runs[operation.name]][rank] = operation.submitted
            runs[operation.name] += 1
    last: Counter[int] = Counter()
    margins: dict[int, list[float]] = defaultdict(list)
    for times in together.values():
        if len(times) == len(by_rank) > 1:
            *_, (before, _), (latest, rank) = sorted((time, rank) for rank, time in times.items())
            last[rank] += 1
            margins[rank].append(latest - before)
    return last, {rank: statistics.fmean(values) for rank, values in margins.items()}


def _slowest(by_rank: dict[int, list[Operation]]) -> list[Slow]:
    runs: dict[str, list[Operation]] = defaultdict(list)
    for operations in by_rank.values():
        for operation in operations:
            runs[operation.name].append(operation)
    slow = [
        Slow(
            name,
            of_one[0].detail,
            len(of_one),
            statistics.fmean(one.agreed - one.submitted for one in of_one),
            statistics.fmean(one.done - one.agreed for one in of_one),
        )
        for name, of_one in runs.items()
    ]
    return sorted(slow, key=lambda one: one.total, reverse=True)[:_SLOWEST]


def as_text(report: Report) -> str:
    """
    Return what people read in a terminal.

    >>> a = [Operation("g", "ALLREDUCE", 0, 10e3 * i, 10e3 * i + 2e3, 10e3 * i + 5e3) for i in range(3)]
    >>> print(as_text(analyze(a)).splitlines()[0])
    2 steps of 10.0 ms (median); a step begins with 'g'
    """
    if not any(report.operations.values()):
        return "no operations: the timeline is empty"
    lines = []
    lengths = [step.length for steps in report.steps.values() for step in steps]
    if lengths:
        count = max(len(steps) for steps in report.steps.values())
        middle = statistics.median(lengths) / 1e3
        lines.append(f"{count} steps of {middle:.1f} ms (median); a step begins with '{report.marker}'")
        lines += ["", f"{'rank':>6}  {'compute':>8}  {'wait':>8}  {'wire':>8}"]
        for rank in report.steps:
            shares = "  ".join(f"{share:8.1%}" for share in report.mean_shares(rank))
            lines.append(f"{rank:>6}  {shares}")
    else:
        lines.append(f"no step: '{report.marker}' comes once only")
    if report.last:
        lines += ["", f"last to submit, of {sum(report.last.values())} operations that all ranks have submitted:"]
        for rank, count in report.last.most_common():
            share = count / sum(report.last.values())
            lines.append(
                f"{rank:>6}  {count} times ({share:.0%}), {report.late[rank] / 1e3:.2f} ms after the one before"
            )
    lines += ["", f"{'slowest operations':<50}  {'wait ms':>9}  {'wire ms':>9}  {'runs':>6}"]
    for one in report.slowest:
        lines.append(
            f"{one.name[-50:]:<50}  {one.wait / 1e3:9.3f}  {one.wire / 1e3:9.3f}  {one.count:>6}  {one.detail}"
        )
    return "\n".join([*lines, "", *_conclusions(report)])


def _conclusions(report: Report) -> list[str]:
    """Return what stands out, in sentences."""
    found = []
    total = sum(report.last.values())
    if total:
        rank, count = report.last.most_common(1)[0]
        waits = [report.mean_shares(other)[1] for other in report.steps if other != rank]
        if count > 0.6 * total and waits and max(waits) > 0.1:
            found.append(
                f"Rank {rank} keeps the others waiting: {max(waits):.0%} of their steps. Look at its data and host."
            )
    wires = [report.mean_shares(rank)[2] for rank in report.steps if report.steps[rank]]
    if wires and max(wires) > 0.3:
        found.append(f"Data moves during {max(wires):.0%} of a step: try compression, or more work between operations.")
    if len(report.slowest) > 2:
        first, second = report.slowest[0], report.slowest[1]
        if first.total > 3 * second.total:
            ratio = first.total / max(second.total, 1e-9)
            found.append(f"'{first.name}' takes {ratio:.0f} times as long as any other operation.")
    return found
