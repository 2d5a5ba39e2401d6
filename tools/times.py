# SPDX-License-Identifier: Apache-2.0
"""Prints where the time of `make test` or `.ci/run` went: its parts beside what is planned, and the slowest tests."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMES = ROOT / "build" / "times"
SLOWEST = 20

# Seconds on 2 idle cores with a cold compiler cache. A part that takes a third longer is marked.
PLANNED = {
    "setup": 300,
    "lint": 10,
    "C++ tests": 180,
    "Python tests": 420,
    "suite: torch": 120,
    "suite: torch_trainers": 90,
    "suite: jax": 120,
    "suite: spark": 180,
    "suite: ray": 90,
    "suite: docs": 90,
    "suite: versions": 60,
    "suite: wheel": 90,
    "chaos": 200,
    "chaos: many ranks": 60,
    "chaos: elastic": 60,
    "chaos: elastic tape": 45,
    "chaos: elastic fit": 45,
    "ASan: build": 240,
    "ASan: tests": 240,
    "TSan: build": 150,
    "TSan: tests": 120,
    "fuzzers: build": 150,
    "fuzzers: run": 150,
}


@dataclasses.dataclass
class Part:
    """What tools/timed noted of a part, in seconds; start counts from the epoch, busy is the time of processors."""

    name: str
    start: float
    seconds: float = 0
    busy: float = 0


def parts(path: pathlib.Path) -> list[Part]:
    """Return the parts in the order of their first ends; one that ran several times has the sum."""
    found: dict[str, Part] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        name, start, seconds, user, system = line.split("\t")
        part = found.setdefault(name, Part(name, float(start)))
        part.seconds += float(seconds)
        part.busy += float(user) + float(system)
    return list(found.values())


def tests(path: pathlib.Path) -> list[tuple[str, float]]:
    """Return names and seconds of the tests in a JUnit file, as ctest and pytest write it."""
    if not path.exists():
        return []
    cases = ElementTree.parse(path).getroot().iter("testcase")
    return [(_name(case), float(case.get("time", 0))) for case in cases]


def _name(case: ElementTree.Element) -> str:
    # ctest repeats the name as the class; pytest writes the module there.
    module, name = case.get("classname", ""), case.get("name", "")
    return name if module == name else f"{module.rsplit('.', 1)[-1]}::{name}"


def table(measured: list[Part]) -> list[str]:
    """Return the lines of the table of parts. Parts that ran side by side count once in its last line."""
    lines = [f"{'part':<24}{'seconds':>9}{'planned':>9}{'cores':>7}"]
    for part in measured:
        planned = PLANNED.get(part.name)
        mark = "  over" if planned and part.seconds > planned * 4 / 3 else ""
        cores = part.busy / part.seconds if part.seconds else 0
        lines.append(f"{part.name:<24}{part.seconds:>9.0f}{planned or '':>9}{cores:>7.1f}{mark}")
    ends = [part.start + part.seconds for part in measured]
    elapsed = max(ends) - min(part.start for part in measured) if measured else 0
    return [*lines, f"{'from start to end':<24}{elapsed:>9.0f}"]


def slowest(measured: list[tuple[str, float]]) -> list[str]:
    """Return the lines of the slowest tests."""
    ranked = sorted(measured, key=lambda test: -test[1])[:SLOWEST]
    return [f"{seconds:>9.1f} s  {name}" for name, seconds in ranked]


def files(measured: list[tuple[str, float]]) -> list[str]:
    """Return a line for each of the files of Python tests that took longest, tests side by side each in full."""
    sums: collections.Counter[str] = collections.Counter()
    for name, seconds in measured:
        if "::" in name:
            sums[name.partition("::")[0]] += seconds
    return [f"{seconds:>9.1f} s  {file}" for file, seconds in sums.most_common(SLOWEST)]


def main() -> int:
    """Print both tables."""
    all_tests = [test for path in sorted(TIMES.glob("*.xml")) for test in tests(path)]
    print("\n".join(["", "Where the time went", *table(parts(TIMES / "parts.tsv"))]))
    print("\n".join(["", "Files of Python tests", *files(all_tests)]))
    print("\n".join(["", f"The {SLOWEST} slowest of {len(all_tests)} programs and tests", *slowest(all_tests)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
