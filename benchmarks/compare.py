#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two results.json of run.py and says which of hvd's figures changed beyond the noise.

Times are compared as ratios to a peer of the same repetition, so that a slower hour of the machine changes nothing;
where a scenario has no peer, as they are. A change counts when the launches of the two runs do not overlap (of five or
more the lowest and the highest are left out) and the medians differ by more than --least.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

REFERENCES = ("Open MPI", "Open MPI, segmented ring", "floor: direct")
FEWEST = 3  # launches


@dataclass
class Figure:
    """Values of one thing, one per launch; smaller is better."""

    values: list[float]
    unit: str

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def band(self) -> tuple[float, float]:
        kept = sorted(self.values)
        if len(kept) >= 5:
            kept = kept[1:-1]
        return kept[0], kept[-1]


def verdict(old: Figure, new: Figure, least: float) -> str:
    """better, worse, same, or unknown where too few launches were made to tell."""
    if old.unit != new.unit or not old.values or not new.values:
        return "unknown"
    (old_low, old_high), (new_low, new_high) = old.band(), new.band()
    small = abs(new.median - old.median) <= least * abs(old.median)
    if small or (new_low <= old_high and old_low <= new_high):
        return "same"
    if min(len(old.values), len(new.values)) < FEWEST:
        return "unknown"
    return "worse" if new.median > old.median else "better"


def times(scenario: dict, name: str, size: int) -> dict[int, float]:
    """Microseconds by repetition. Sizes are text in JSON."""
    launches = scenario["launches"].get(name, [])
    found = {one["repetition"]: one["medians"][str(size)] for one in launches if str(size) in one["medians"]}
    for time in found.values():
        if not 0 < float(time) < math.inf:
            raise ValueError(f"{time!r} µs for {size} B of {name} is no time")
    return found


def paired(own: dict[int, float], peer: dict[int, float]) -> list[float]:
    return [us / peer[repetition] for repetition, us in own.items() if repetition in peer]


def figures(document: dict, relative: bool = True) -> dict[str, Figure]:
    """Everything of hvd's in a document."""
    found = {}
    for scenario in document["scenarios"]:
        for name in scenario["launches"]:
            if not name.startswith("hvd"):
                continue
            for size in scenario["sizes"]:
                key, own = f"{scenario['name']}: {name}, {size} B", times(scenario, name, size)
                peer = next((r for r in REFERENCES if relative and times(scenario, r, size)), None)
                values = paired(own, times(scenario, peer, size)) if peer else list(own.values())
                if values:
                    found[key] = Figure(values, f"x {peer}" if peer else "µs")
    for bar in document["bars"]:
        if bar["unit"] in ("s", "%", "MiB") and bar["values"]:  # the others are among the times
            found[bar["what"]] = Figure(bar["values"], bar["unit"])
    return found


def drift(old: dict, new: dict) -> float | None:
    """How many times as long the peers and floor programs took: the machine, not the engine."""
    before = {scenario["name"]: scenario for scenario in old["scenarios"]}
    ratios = []
    for scenario in new["scenarios"]:
        for name in scenario["launches"]:
            for size in scenario["sizes"]:
                now = times(scenario, name, size)
                then = times(before[scenario["name"]], name, size) if scenario["name"] in before else {}
                if now and then and not name.startswith("hvd"):
                    ratios.append(statistics.median(now.values()) / statistics.median(then.values()))
    return statistics.median(ratios) if ratios else None


def line(key: str, old: Figure, new: Figure, outcome: str) -> str:
    def text(figure: Figure) -> str:
        low, high = figure.band()
        return f"{figure.median:.3g} ({low:.3g} .. {high:.3g})"

    change = f"{new.median / old.median - 1:+.0%}" if old.median else "from 0"
    return f"{outcome:8} {change:>7}  {key}: {text(old)} -> {text(new)} {new.unit}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--least", type=float, default=0.05, help="changes below this share are none; default 0.05")
    parser.add_argument("--absolute", action="store_true", help="compare microseconds, not ratios to a peer")
    parser.add_argument("--all", action="store_true", help="also what did not change")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when something got worse or is gone")
    options = parser.parse_args()
    try:
        old, new = (json.loads(path.read_text()) for path in (options.old, options.new))
        before, after = (figures(document, not options.absolute) for document in (old, new))
        machine = drift(old, new)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as reason:
        sys.exit(f"compare.py: {options.old} and {options.new} must be results.json of run.py: {reason!r}")
    outcomes = {key: verdict(before[key], after[key], options.least) for key in after if key in before}
    for wanted in ("worse", "better", "unknown", "same"):
        for key, outcome in outcomes.items():
            if outcome == wanted and (options.all or wanted in ("worse", "better")):
                print(line(key, before[key], after[key], outcome))
    for title, keys in (("only in the old", before.keys() - after.keys()), ("only in the new", after.keys() - before)):
        for key in sorted(keys):
            print(f"{title}: {key}")
    if machine is not None:
        print(f"the machine: peers and floor programs took {machine:.2f} times as long")
    counts = {wanted: list(outcomes.values()).count(wanted) for wanted in ("worse", "better", "same", "unknown")}
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    if not outcomes:
        print("nothing is in both, so nothing was compared")
    lost = before.keys() - after.keys()
    return 1 if options.strict and (counts["worse"] or lost or not outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
