# SPDX-License-Identifier: Apache-2.0
"""What the engine promises, and whether it was kept."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from contenders import HVD_ARENA, HVD_PRIVATE, KIB, MIB, OPEN_MPI, SIZES
from measure import Comparison, run, say


@dataclass
class Bar:
    """One line of the table of promises. `values` has one entry per launch; empty: not measured."""

    what: str
    limit: float
    at_most: bool
    unit: str
    values: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def passed(self) -> bool | None:
        if not self.values:
            return None
        return self.median <= self.limit if self.at_most else self.median >= self.limit


def size_name(size: int) -> str:
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def latency_bar(comparison: Comparison) -> Bar:
    ratios = comparison.ratios(HVD_PRIVATE, OPEN_MPI, 4)
    return Bar("4 B allreduce: time / Open MPI's", 4.0, True, "x", ratios)


def bandwidth_bars(comparison: Comparison, who: str, label: str, low: int, high: int, limit: float) -> list[Bar]:
    """One per size; the promise holds when each does."""
    return [
        Bar(
            f"{size_name(size)}, {label}: bandwidth / Open MPI's",
            limit,
            False,
            "x",
            comparison.ratios(OPEN_MPI, who, size),
        )
        for size in SIZES
        if low <= size <= high
    ]


def lifecycle_bar(hvd_perf: Path, arguments: list[str], keys: list[str], bar: Bar) -> Bar:
    """Fills a bar with these figures of one of hvd_perf's other benches."""
    try:
        stdout, foreign = run([str(hvd_perf), *arguments, "--json", "-"])
        figures = json.loads(stdout)
        bar.values = [figures[key] for key in keys]
        bar.note = f"{foreign:.0%} other work" if foreign > 0.1 else ""
    except (RuntimeError, ValueError, KeyError) as reason:
        say(f"{bar.what}: {reason}")
        bar.note = "failed: " + str(reason).splitlines()[0][:120]
    return bar


def lifecycle_bars(hvd_perf: Path, ranks: int, quick: bool) -> list[Bar]:
    idle_s, repeats = ("2", "3") if quick else ("10", "5")
    idle = Bar("idle process after init: share of a core", 0.2, True, "%")
    memory = Bar("resident memory that init adds", 24, True, "MiB")
    bars = [
        lifecycle_bar(hvd_perf, ["--idle-bench", idle_s, "--ranks", str(ranks)], ["cpu_percent"], idle),
        lifecycle_bar(hvd_perf, ["--memory-bench", "--ranks", str(ranks)], ["init_rss_mib"], memory),
    ]
    for count, limit in ((2, 0.1), (16, 0.5), (64, 3.0)):
        for store in ("tcp", "file"):
            bar = Bar(f"init of {count} local ranks, {store} rendezvous", limit, True, "s")
            arguments = ["--init-bench", str(count), "--repeats", repeats, "--rendezvous", store]
            bars.append(lifecycle_bar(hvd_perf, arguments, ["min_s", "median_s", "max_s"], bar))
    return bars


def all_bars(comparison: Comparison, hvd_perf: Path, ranks: int, quick: bool) -> list[Bar]:
    return [
        latency_bar(comparison),
        *bandwidth_bars(comparison, HVD_ARENA, "arena buffers", 64 * KIB, 16 * MIB, 2.5),
        *bandwidth_bars(comparison, HVD_PRIVATE, "private buffers", MIB, 16 * MIB, 1.0),
        *lifecycle_bars(hvd_perf, ranks, quick),
    ]
