# SPDX-License-Identifier: Apache-2.0
"""What the engine costs besides its operations: starting, idling, memory."""

from __future__ import annotations

import json
from pathlib import Path

from bars import Bar
from measure import run, say


def measured(hvd_perf: Path, arguments: list[str], keys: list[str], bar: Bar) -> Bar:
    """Fills a bar with these figures of one of hvd_perf's other benches."""
    try:
        stdout, foreign = run([str(hvd_perf), "--fork", *arguments, "--json", "-"])
        figures = json.loads(stdout)
        bar.values = [figures[key] for key in keys]
        bar.note = f"{foreign:.0%} other work" if foreign > 0.1 else ""
    except (RuntimeError, ValueError, KeyError) as reason:
        say(f"{bar.what}: {reason}")
        bar.note = "failed: " + str(reason).splitlines()[0][:120]
    return bar


def lifecycle_bars(hvd_perf: Path, quick: bool) -> list[Bar]:
    idle_s, repeats = ("2", "3") if quick else ("10", "5")
    idle = Bar(
        "idle process after init: share of a core", 0.2, True, "%", goal="start", group="idle process after init"
    )
    memory = Bar(
        "resident memory that init adds", 24, True, "MiB", goal="start", group="resident memory that init adds"
    )
    bars = [
        measured(hvd_perf, ["--idle-bench", idle_s], ["cpu_percent"], idle),
        measured(hvd_perf, ["--memory-bench"], ["init_rss_mib"], memory),
    ]
    for count, limit in ((2, 0.1), (16, 0.5), (64, 3.0)):
        for store in ("tcp", "file"):
            what = f"init of {count} local ranks"
            bar = Bar(
                f"{what}, {store} rendezvous", limit, True, "s", goal="start", group=what, at=f"{store} rendezvous"
            )
            arguments = ["--init-bench", str(count), "--repeats", repeats, "--rendezvous", store]
            bars.append(measured(hvd_perf, arguments, ["min_s", "median_s", "max_s"], bar))
    return bars
