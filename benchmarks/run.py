#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures hvd beside Open MPI, MPICH, Gloo and the naive floor programs, and says which promises hold.

All contenders run in the same minutes, in alternating order, on fresh data; see docs/operate/benchmarks.md.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

import report
from arguments import count
from bars import all_bars
from contenders import HVD_PERF, ROOT, cores
from lifecycle import lifecycle_bars
from measure import compare, say
from plots import draw
from scenarios import all_scenarios


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument("--quick", action="store_true", help="3 repetitions, fewer sizes, under 2 minutes")
    depth.add_argument("--full", action="store_true", help="15 repetitions and sizes up to 256 MiB")
    parser.add_argument("--repetitions", type=count, help="default 7")
    parser.add_argument("--seconds", type=float, help="stop comparing after about so long")
    parser.add_argument("--only", default="", help="the scenarios whose name contains this text")
    parser.add_argument(
        "--max-foreign", type=float, default=0.08, help="repeat a launch with more other work than this"
    )
    parser.add_argument("--hvd-perf", type=Path, default=HVD_PERF, help=f"default {HVD_PERF.relative_to(ROOT)}")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "results.json")
    parser.add_argument(
        "--markdown",
        type=Path,
        default=ROOT / "build" / "bench" / "results.md",
        help="written, or updated between its result markers (docs/operate/benchmarks.md has them)",
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a promise is missed or not measured")
    return parser.parse_args()


def find_hvd_perf(path: Path) -> Path:
    """Builds it where the release build is configured; ends the program where it cannot be had."""
    build_folder = HVD_PERF.parent.parent
    if path == HVD_PERF and (build_folder / "CMakeCache.txt").exists():
        built = subprocess.run(["cmake", "--build", str(build_folder), "--target", "hvd_perf"], capture_output=True)
        if built.returncode != 0:
            say(built.stdout.decode()[-2000:])
    if not path.exists():
        sys.exit(f"{path} does not exist; run `make setup` first")
    return path.resolve()


def main() -> int:
    options = parse()
    hvd_perf = find_hvd_perf(options.hvd_perf)
    repetitions = options.repetitions or (3 if options.quick else 15 if options.full else 7)
    seconds = options.seconds or (80 if options.quick else 1500 if options.full else 420)
    say("building the peers' programs")
    scenarios = [one for one in all_scenarios(hvd_perf, options.quick, options.full) if options.only in one.name]
    if not scenarios:
        sys.exit(f"no scenario's name contains '{options.only}'")
    described = report.context(scenarios, " ".join(["benchmarks/run.py", *map(shlex.quote, sys.argv[1:])]))
    if "not measured" in described:
        say(f"left out: {described['not measured']}")
    comparisons = compare(scenarios, repetitions, seconds, options.max_foreign)
    bars = all_bars(comparisons, cores())
    if not options.only:
        say("start, idling and memory")
        bars += lifecycle_bars(hvd_perf, options.quick)

    images = draw(comparisons, options.markdown)
    text = report.markdown(bars, comparisons, described, images)
    report.write_markdown(options.markdown, text)
    report.write_json(options.json, described, bars, scenarios=report.scenarios_as_json(comparisons))
    print(text)
    say(f"took {report.took():.0f} s; written: {options.markdown}, {options.json}")
    if any(name.startswith("hvd") for comparison in comparisons for name in comparison.failures):
        return 1
    return 1 if options.strict and not all(bar.passed for bar in bars) else 0


if __name__ == "__main__":
    sys.exit(main())
