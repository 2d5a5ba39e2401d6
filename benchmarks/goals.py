#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One table of everything that was promised, from the JSON files that the other benchmarks wrote. Measures nothing.

A promise at several sizes is one line: it holds when it holds at each, and the figure is that of the worst one. The
table of docs/operate/benchmarks.md between the goals markers is brought up to date with --markdown.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import page
import report
from bars import Bar
from contenders import ROOT

FOLDER = ROOT / "build" / "bench"
# Who writes which file.
SOURCES = {
    "results.json": "benchmarks/run.py --full",
    "training.json": "benchmarks/training.py",
    "startup.json": "benchmarks/startup.py",
    "tensorflow.json": "benchmarks/tensorflow_bench.py",
    "upstream.json": "benchmarks/upstream.py",
    "hosts.json": "benchmarks/hosts.py",
    "cores.json": 'benchmarks/run.py --only "allreduce, " --json build/bench/cores.json',
}

# Those that `make bench` does.
BENCH = ("results.json", "training.json", "startup.json", "tensorflow.json", "upstream.json")


@dataclass(frozen=True)
class Goal:
    """What it is about, what is promised in short, and which files may have its figures."""

    title: str
    promised: str
    sources: tuple[str, ...] = ("results.json",)


GOALS = {
    "G1": Goal("4 B and 1 KiB, blocking, 2 ranks", "≤ 1.5x the direct floor, ≤ 1.15x Open MPI"),
    "Python": Goal("4 B from NumPy", "≤ 10 µs above a ctypes call"),
    "G2": Goal("16 to 256 KiB, any buffer", "≥ 1.5x Open MPI up to 64 KiB, ≥ 1x at 256 KiB"),
    "G3": Goal("64 KiB to 16 MiB in arena memory", "≥ 85 % of the memory's limit, ≥ 3x Open MPI"),
    "G4": Goal("1 to 16 MiB from private memory", "≥ 1.5x, in private memory ≥ 1.1x Open MPI"),
    "G5": Goal("64 and 256 MiB", "arena ≥ 85 % of the limit, ≥ 2.5x; private ≥ 1.4x tuned Open MPI"),
    "G6": Goal("4 and 8 ranks on fewer cores", "≥ 1.3x Open MPI at 4 B, ≥ 3x from 64 KiB on, no cliff"),
    "G7": Goal("against Gloo", "≥ 100x at 4 B, ≥ 5x the bandwidth"),
    "G8": Goal("TCP between hosts, no limit", "latency ≤ 1x, from 1 MiB on ≥ 1.3x Open MPI", ("hosts.json",)),
    "G9": Goal("1 Gbit/s, 2 and 4 hosts, from 4 MiB on", "≥ 98 % of the wire's bound", ("hosts.json",)),
    "G10": Goal("10 Gbit/s, 2 hosts, from 4 MiB on", "≥ 90 % of the wire's bound", ("hosts.json",)),
    "G11": Goal("2 x 2 and 2 x 4 ranks, 1 Gbit/s", "≥ 95 %, ≥ 90 % of the bound by hosts", ("hosts.json",)),
    "G12": Goal("reducescatter, allgather, broadcast, alltoall", "≥ 4x, ≥ 1.2x each of the others, Open MPI"),
    "G13": Goal(
        "emulated training; a step of 161 cached tensors",
        "≥ 90 % (ResNet-50), > 68 % (VGG-16); ≤ 100 µs",
        ("results.json", "training.json"),
    ),
    "upstream": Goal(
        "against Horovod 0.28.1, through TensorFlow",
        "≥ 20x up to 64 KiB, ≥ 3x from 1 MiB on; idle 0; start ≤ 0.3 s above the import",
        ("upstream.json",),
    ),
    "cores": Goal(
        "a core for every rank, 2, 4 and 8 ranks",
        "≤ 1.5x the best floor at 4 B; ≥ 80 % of the direct floor, ≥ 4x Open MPI from 64 KiB on",
        ("results.json", "cores.json"),
    ),
    "start": Goal("starting, idling, memory", "", ("results.json", "startup.json")),
    "TensorFlow": Goal("horovod.tensorflow", "", ("tensorflow.json",)),
}


def read(folder: Path) -> dict[str, dict]:
    """The files that are there. One that an older benchmark wrote, without bars of goals, is as good as none."""
    found = {}
    for name in SOURCES:
        try:
            document = json.loads((folder / name).read_text())
        except (OSError, ValueError):
            continue
        if isinstance(document, dict) and any(bar.get("goal") for bar in document.get("bars", [])):
            found[name] = document
    return found


def as_bar(entry: dict) -> Bar:
    return Bar(**{field.name: entry[field.name] for field in fields(Bar)})


def bars_of(goal: str, documents: dict[str, dict]) -> list[Bar]:
    """Of each promise those of the last file that has it."""
    found: dict[tuple[str, str, float], Bar] = {}
    for name in GOALS[goal].sources:
        for entry in documents.get(name, {}).get("bars", []):
            if entry["goal"] == goal:
                bar = as_bar(entry)
                found[bar.group or bar.what, bar.at, bar.limit] = bar
    return list(found.values())


def promises(bars: list[Bar]) -> list[list[Bar]]:
    """Bars of the same promise together."""
    groups: dict[tuple[str, float, bool], list[Bar]] = {}
    for bar in bars:
        groups.setdefault((bar.group or bar.what, bar.limit, bar.at_most), []).append(bar)
    return list(groups.values())


def worst(bars: list[Bar]) -> Bar:
    """The one that is farthest from its limit on the wrong side, or nearest to it."""
    return (max if bars[0].at_most else min)(bars, key=lambda bar: bar.median)


def outcome(bars: list[Bar]) -> str:
    """Whether all hold; else which do not, and what is known of the worst one's figure."""
    missed = [bar.at for bar in bars if bar.passed is False]
    unknown = [bar.at for bar in bars if bar.passed is None]
    if len(unknown) == len(bars):
        return "not measured"
    parts = []
    if missed:
        many = f" at {len(missed)} of {len(bars)}: {'; '.join(missed)}" if len(bars) > 1 else ""
        known = worst([bar for bar in bars if bar.values]).note
        parts.append(f"**miss**{many}" + (f" ({known})" if known else ""))
    if unknown:
        parts.append(f"not measured: {'; '.join(unknown)}")
    return "; ".join(parts) or "holds"


def line(goal: str, bars: list[Bar]) -> str:
    """One promise."""
    measured = [bar for bar in bars if bar.values]
    figure, spread = "", ""
    if measured:
        bar = worst(measured)
        place = f" at {bar.at}" if bar.at and len(bars) > 1 else ""
        figure = f"{report.digits(bar.median, bar.unit)} {bar.unit}{place}"
        if len(bar.values) > 1:
            spread = " .. ".join(report.digits(value, bar.unit) for value in (min(bar.values), max(bar.values)))
    what = bars[0].group or bars[0].what
    return f"| {goal} | {what} | {report.promised(bars[0])} | {figure} | {spread} | {outcome(bars)} |"


def table(documents: dict[str, dict]) -> str:
    """Return it in Markdown."""
    lines = ["| goal | what | promised | measured, worst place | min .. max | |", "|---|---|---|---:|---:|---|"]
    for name, goal in GOALS.items():
        bars = bars_of(name, documents)
        lines += [line(name, group) for group in promises(bars)]
        missing = [source for source in goal.sources if source not in documents]
        if not bars or (missing and name != "cores"):  # one file is enough for that
            how = ", ".join(f"`{SOURCES[source]}`" for source in missing or goal.sources)
            rest = "the rest: " if bars else ""
            lines.append(f"| {name} | {rest}{goal.title} | {goal.promised} | | | not measured: {how} |")
    return "\n".join(lines)


def took(documents: dict[str, dict]) -> str:
    """How long `make bench` took, if all its parts are there."""
    seconds = {name: documents.get(name, {}).get("took_s") for name in BENCH}
    if None in seconds.values():
        return ""
    parts = ", ".join(f"{Path(SOURCES[name].split()[0]).name} {one:.0f} s" for name, one in seconds.items())
    return f"\n\nThe parts of `make bench` took {sum(seconds.values()) / 60:.1f} minutes in all: {parts}."


def origins(documents: dict[str, dict]) -> str:
    """Where the figures are from, and how long it took."""
    lines = [f"- `{one['context']['command']}`: {report.origin(one['context'])}" for one in documents.values()]
    return "\n".join(lines) + took(documents)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"default {FOLDER.relative_to(ROOT)}")
    parser.add_argument("--markdown", type=Path, help="a page with the goals markers")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a promise is missed or not measured")
    options = parser.parse_args()
    documents = read(options.folder)
    text = f"{table(documents)}\n\n{origins(documents)}".rstrip()
    print(text)
    if options.markdown:
        page.put(options.markdown, "goals", text)
    bars = [bar for goal in GOALS for bar in bars_of(goal, documents)]
    return 1 if options.strict and not (bars and all(bar.passed for bar in bars)) else 0


if __name__ == "__main__":
    sys.exit(main())
