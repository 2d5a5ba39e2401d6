#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures NumPy arrays with the system's heap, with the arena heap and in Open MPI, in turns.

Many small asynchronous allreduces, and large blocking ones: of arrays as np.empty makes them, of others that begin at a
multiple of 64 bytes, and of hvd.empty. Two ranks. Prints tables in Markdown. It is no part of `make bench`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from pathlib import Path

import report
from arguments import count
from contenders import MIB, ROOT, Contender, Unavailable, open_mpi
from measure import rounds, run, say

PROGRAM = [sys.executable, str(ROOT / "benchmarks" / "numpy_rank.py")]
HEAPS = ("system", "arena")
SIZES = (1, 4, 16)  # MiB
KINDS = (
    ("malloc", "np.empty"),
    ("aligned", "the same, at a multiple of 64 bytes"),
    ("arena", "hvd.empty"),
)


def ranks(heap: str, what: str) -> dict[str, float]:
    """Run two ranks of hvd."""
    horovodrun = Path(sys.executable).parent / "horovodrun"
    stdout, _ = run([str(horovodrun), "-np", "2", "--heap", heap, "--prefix", "", *PROGRAM, what], timeout=300)
    return json.loads(next(line[7:] for line in stdout.splitlines() if line.startswith("RESULT ")))


def peer() -> Contender | None:
    """Return Open MPI, if it is installed."""
    try:
        return open_mpi(2, [size * MIB for size in SIZES])
    except Unavailable as reason:
        say(f"without Open MPI: {reason}")
        return None


def measure(launches: int, seconds: float, what: str) -> dict[str, list[float]]:
    """Return every launch's value of every figure, with the heap behind its name, and of Open MPI in GB/s."""
    values: dict[str, list[float]] = {}
    mpi = peer() if "large" in what else None
    for number in rounds(launches, seconds):
        say(f"launch {number + 1}/{launches}")
        for heap in HEAPS if number % 2 else HEAPS[::-1]:
            for name, value in ranks(heap, what).items():
                values.setdefault(f"{name} {heap}", []).append(value)
        if mpi is not None:
            for size, us in mpi.medians(run(mpi.command, mpi.env)[0]).items():
                values.setdefault(f"mpi{size // MIB}", []).append(size / us / 1e3)
    return values


def cell(found: list[float] | None) -> str:
    """Return the median of launches and their spread."""
    if not found:
        return ""
    return f"{statistics.median(found):.1f} ({min(found):.1f} .. {max(found):.1f})"


def tables(values: dict[str, list[float]]) -> str:
    """Return what there is in Markdown."""
    lines = []
    if "many1000 system" in values:
        lines += ["| ms a step: median (min .. max of launches) | system's heap | arena heap |", "|---|---:|---:|"]
        for number in (1000, 3000):
            cells = " | ".join(cell(values.get(f"many{number} {heap}")) for heap in HEAPS)
            lines.append(f"| {number:,} asynchronous allreduces of 4 KiB, submitted and synchronized | {cells} |")
    if "malloc1in system" in values:
        heads = " | ".join(f"{size} MiB" for size in SIZES)
        lines += ["", f"| GB/s: median (min .. max of launches) | {heads} |", "|---|" + "---:|" * len(SIZES)]
        for heap in HEAPS:
            for kind, text in KINDS:
                for way, where in (("in", "in place"), ("out", "out of place")):
                    cells = " | ".join(cell(values.get(f"{kind}{size}{way} {heap}")) for size in SIZES)
                    lines.append(f"| {text}, {where}, {heap} heap | {cells} |")
        lines.append(f"| Open MPI, in place | {' | '.join(cell(values.get(f'mpi{size}')) for size in SIZES)} |")
    return "\n".join(lines).strip()


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=count, default=5)
    parser.add_argument("--seconds", type=float, default=300, help="begin no launches that would take longer in all")
    parser.add_argument("--only", choices=("many", "large"), help="measure one of both")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "numpy.json")
    options = parser.parse_args()
    values = measure(options.launches, options.seconds, options.only or "many,large")
    context = report.context([], " ".join(["benchmarks/numpy_bench.py", *map(shlex.quote, sys.argv[1:])]))
    print(f"{tables(values)}\n\n{report.origin(context)}")
    report.write_json(options.json, context, [], values=values)
    return 0


if __name__ == "__main__":
    sys.exit(main())
