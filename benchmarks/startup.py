#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what horovodrun adds to the start of N ranks of a trivial NumPy script: by it, and N times by the shell.

Both run in the same minutes, in alternating order. The table of docs/operate/benchmarks.md between the start-up markers
can be brought up to date with --markdown.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

import page
import report
from arguments import count
from bars import Bar
from measure import rounds

ROOT = Path(__file__).resolve().parent.parent
PYTHON = Path(sys.executable)
HOROVODRUN = PYTHON.parent / "horovodrun"
SCRIPT = """import numpy as np, horovod.numpy as hvd
hvd.init()
assert hvd.allreduce(np.ones(1), op=hvd.Sum)[0] == hvd.size()"""
# The shell starts the same script; alone, each is a job of one rank.
LIMITS = {2: 0.15, 16: 0.5, 64: 2.5}


def seconds(command: list[str]) -> float:
    """Run it and return how long it took."""
    begin = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    took = time.perf_counter() - begin
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return took


def ways(ranks: int) -> dict[str, list[str]]:
    """Return the commands."""
    ours = [str(HOROVODRUN), "-np", str(ranks), "-H", f"localhost:{ranks}", str(PYTHON), "-c", SCRIPT]
    shell = ["bash", "-c", f"for i in $(seq {ranks}); do '{PYTHON}' -c \"{SCRIPT}\" & done; wait"]
    return {"horovodrun": ours, "shell": shell}


def measure(all_ranks: list[int], repetitions: int, limit: float) -> dict[int, dict[str, list[float]]]:
    """Return the times of both ways for each number of ranks."""
    results = {ranks: {name: [] for name in ways(ranks)} for ranks in all_ranks}
    for repetition in rounds(repetitions, limit):
        for ranks, times in results.items():
            both = list(ways(ranks).items())
            for name, command in both if repetition % 2 else reversed(both):
                times[name].append(seconds(command))
    return results


def bars_of(results: dict[int, dict[str, list[float]]]) -> list[Bar]:
    """What horovodrun may add, one value per repetition."""
    what = "what horovodrun adds to the start and end of NumPy ranks"
    bars = []
    for ranks, times in results.items():
        more = [ours - shell for ours, shell in zip(times["horovodrun"], times["shell"])]
        text = f"{what}, {ranks} ranks"
        bars.append(Bar(text, LIMITS[ranks], True, "s", more, goal="start", group=text))
    return bars


def table(results: dict[int, dict[str, list[float]]]) -> str:
    """Return it in Markdown."""
    lines = ["| ranks | horovodrun | shell | more, median (min .. max) | limit | |", "|---:|---:|---:|---:|---:|---|"]
    for (ranks, times), bar in zip(results.items(), bars_of(results)):
        lines.append(
            f"| {ranks} | {statistics.median(times['horovodrun']):.2f} s | {statistics.median(times['shell']):.2f} s "
            f"| {bar.median:.2f} s ({min(bar.values):.2f} .. {max(bar.values):.2f}) | {bar.limit} s "
            f"| {report.verdict(bar)} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=list(LIMITS), choices=list(LIMITS))
    parser.add_argument("--repetitions", type=count, default=5)
    parser.add_argument("--seconds", type=float, default=140, help="begin no repetition that would take longer in all")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "startup.json")
    parser.add_argument("--markdown", type=Path, help="a page with the start-up markers")
    options = parser.parse_args()
    results = measure(options.ranks, options.repetitions, options.seconds)
    context = report.context([], " ".join(["benchmarks/startup.py", *map(shlex.quote, sys.argv[1:])]))
    text = f"{table(results)}\n\n{report.origin(context)}"
    print(text)
    report.write_json(options.json, context, bars_of(results), seconds=results)
    if options.markdown:
        page.put(options.markdown, "start-up", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
