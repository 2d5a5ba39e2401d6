# SPDX-License-Identifier: Apache-2.0
"""What the engine is to reach, as data, and whether it did."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from contenders import (
    FLOOR_DIRECT,
    FLOOR_SLOTS,
    FLOOR_STAGED,
    GLOO,
    HVD_ARENA,
    HVD_MIXED,
    HVD_NUMPY,
    HVD_PRIVATE,
    HVD_STEP,
    KIB,
    MEMORY_LIMIT,
    MIB,
    OPEN_MPI,
    OPEN_MPI_TUNED,
)
from measure import Comparison
from scenarios import BLOCK_SIZES, CROWDED_SIZES, LARGE, LARGE_SIZES, MANY, NUMPY, OTHERS, PAIR, SIZES, STEP


@dataclass
class Bar:
    """
    One line of the table of promises. `values` has one entry per launch; empty: not measured.

    Bars of the same goal and group are one promise at several places (`at`: sizes, interfaces).
    """

    what: str
    limit: float
    at_most: bool
    unit: str
    values: list[float] = field(default_factory=list)
    note: str = ""
    goal: str = ""
    group: str = ""
    at: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def passed(self) -> bool | None:
        if not self.values:
            return None
        return self.median <= self.limit if self.at_most else self.median >= self.limit


@dataclass(frozen=True)
class Goal:
    """
    A limit for one contender of a scenario at several sizes; it holds when it holds at each.

    With `against` it is a ratio within a repetition: of times where it is "at most", of speeds where it is "at least".
    Of several to be compared with, the fastest counts. Without it, it is a time in microseconds.
    """

    number: str
    scenario: str
    who: str
    against: str | tuple[str, ...] | None
    sizes: tuple[int, ...]
    limit: float
    at_most: bool = False


def between(low: int, high: int, sizes: list[int] = SIZES) -> tuple[int, ...]:
    return tuple(size for size in sizes if low <= size <= high)


SMALL = (4, KIB)
ONE_HOST = (
    Goal("G1", PAIR, HVD_PRIVATE, FLOOR_DIRECT, SMALL, 1.5, at_most=True),
    Goal("G1", PAIR, HVD_PRIVATE, OPEN_MPI, SMALL, 1.15, at_most=True),
    Goal("Python", NUMPY, HVD_NUMPY, None, (4,), 10, at_most=True),
    Goal("G2", PAIR, HVD_PRIVATE, OPEN_MPI, between(16 * KIB, 64 * KIB), 1.5),
    Goal("G2", PAIR, HVD_MIXED, OPEN_MPI, between(16 * KIB, 64 * KIB), 1.5),
    Goal("G2", PAIR, HVD_ARENA, OPEN_MPI, (16 * KIB,), 1.5),
    Goal("G2", PAIR, HVD_PRIVATE, OPEN_MPI, (256 * KIB,), 1.0),
    Goal("G2", PAIR, HVD_MIXED, OPEN_MPI, (256 * KIB,), 1.0),
    Goal("G3", PAIR, HVD_ARENA, MEMORY_LIMIT, between(64 * KIB, 16 * MIB), 0.85),
    Goal("G3", PAIR, HVD_ARENA, OPEN_MPI, between(64 * KIB, 16 * MIB), 3.0),
    Goal("G4", PAIR, HVD_MIXED, OPEN_MPI, between(MIB, 16 * MIB), 1.5),
    Goal("G4", PAIR, HVD_PRIVATE, OPEN_MPI, between(MIB, 16 * MIB), 1.1),
    Goal("G5", LARGE, HVD_ARENA, MEMORY_LIMIT, tuple(LARGE_SIZES), 0.85),
    Goal("G5", LARGE, HVD_ARENA, OPEN_MPI_TUNED, tuple(LARGE_SIZES), 2.5),
    Goal("G5", LARGE, HVD_PRIVATE, OPEN_MPI_TUNED, tuple(LARGE_SIZES), 1.4),
    Goal("G7", PAIR, HVD_PRIVATE, GLOO, (4,), 100),
    Goal("G7", PAIR, HVD_ARENA, GLOO, between(64 * KIB, 16 * MIB), 5),
    Goal("G7", PAIR, HVD_PRIVATE, GLOO, between(64 * KIB, 16 * MIB), 5),
    Goal("G12", OTHERS["reducescatter"], HVD_ARENA, OPEN_MPI, tuple(BLOCK_SIZES), 4.0),
    Goal("G12", OTHERS["allgather"], HVD_ARENA, OPEN_MPI, tuple(BLOCK_SIZES), 1.2),
    Goal("G12", OTHERS["broadcast"], HVD_ARENA, OPEN_MPI, tuple(BLOCK_SIZES), 1.2),
    Goal("G12", OTHERS["alltoall"], HVD_ARENA, OPEN_MPI, tuple(BLOCK_SIZES), 1.2),
    Goal("G13", STEP, HVD_STEP, None, (4,), 100, at_most=True),
)

# More ranks than cores.
CROWDED = tuple(
    goal
    for name in MANY.values()
    for goal in (
        Goal("G6", name, HVD_PRIVATE, OPEN_MPI, (4,), 1.3),
        Goal("G6", name, HVD_ARENA, OPEN_MPI, between(64 * KIB, MIB, CROWDED_SIZES), 3.0),
    )
)

# A core for every rank of the largest job. Of two ranks there are figures by another floor program.
ROOMY = tuple(
    goal
    for name in (PAIR, *MANY.values())
    for goal in (
        Goal(
            "cores",
            name,
            HVD_PRIVATE,
            (FLOOR_DIRECT, FLOOR_STAGED if name == PAIR else FLOOR_SLOTS),
            (4,),
            1.5,
            at_most=True,
        ),
        Goal("cores", name, HVD_ARENA, FLOOR_DIRECT, between(64 * KIB, MIB, CROWDED_SIZES), 0.8),
        Goal("cores", name, HVD_ARENA, OPEN_MPI, between(64 * KIB, MIB, CROWDED_SIZES), 4.0),
    )
)

# A size may take so many times as long as the next larger one; a queue that fills or a wait that sleeps shows here.
CLIFF = 1.5


def goals_for(cores: int) -> list[Goal]:
    """G6 is about crowded cores; with a core per rank the limits are others."""
    crowded_names = [name for ranks, name in MANY.items() if ranks > cores]
    crowded = [goal for goal in CROWDED if goal.scenario in crowded_names]
    roomy_names = [name for name in MANY.values() if name not in crowded_names] + ([] if crowded_names else [PAIR])
    roomy = [goal for goal in ROOMY if goal.scenario in roomy_names]
    return [*ONE_HOST, *crowded, *roomy]


def size_name(size: int) -> str:
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def describe(goal: Goal, size: int | None = None) -> str:
    """At one size, or at all of them."""
    who = goal.who.removeprefix("hvd, ")
    if goal.against is None:
        return who
    against = goal.against if isinstance(goal.against, str) else "the best of " + ", ".join(goal.against)
    where = "" if goal.scenario in (PAIR, LARGE) else goal.scenario.removesuffix(", 2 ranks") + ", "
    where += "" if size is None else size_name(size) + ", "
    return f"{where}{who}: {'time' if goal.at_most else 'speed'} / {against}"


def judge(goal: Goal, comparison: Comparison) -> list[Bar]:
    """One bar for every size of the goal that the scenario has; an empty one where there are no figures."""
    bars = []
    for size in goal.sizes:
        if size not in comparison.scenario.sizes:
            continue
        if goal.against is None:
            values, unit = comparison.times(goal.who, size), "µs"
        else:
            times, unit = comparison.ratios(goal.who, goal.against, size), "x"
            values = times if goal.at_most else [1 / ratio for ratio in times]
        place = {"goal": goal.number, "group": describe(goal), "at": size_name(size)}
        bars.append(Bar(f"{goal.number} {describe(goal, size)}", goal.limit, goal.at_most, unit, values, **place))
    return bars


def cliff_bars(comparison: Comparison) -> list[Bar]:
    """For crowded cores: the worst step between neighbouring sizes, for both kinds of buffers."""
    bars = []
    sizes = comparison.scenario.sizes
    for who in (HVD_ARENA, HVD_PRIVATE):
        steps = {
            size: ratios
            for size, larger in zip(sizes, sizes[1:])
            if (ratios := comparison.ratios(who, who, size, larger))
        }
        what = f"{comparison.scenario.name}, {who.removeprefix('hvd, ')}: no cliff, time / next size's"
        bar = Bar(f"G6 {what}", CLIFF, True, "x", goal="G6", group=what)
        if steps:
            worst = max(steps, key=lambda size: statistics.median(steps[size]))
            bar.values, bar.note, bar.at = steps[worst], f"worst at {size_name(worst)}", size_name(worst)
        bars.append(bar)
    return bars


def all_bars(comparisons: list[Comparison], cores: int) -> list[Bar]:
    """Those of the scenarios that were run, in the order of the goals."""
    by_name = {comparison.scenario.name: comparison for comparison in comparisons}
    bars = []
    for goal in goals_for(cores):
        if goal.scenario in by_name:
            bars += judge(goal, by_name[goal.scenario])
    for ranks, name in MANY.items():
        if ranks > cores and name in by_name:
            bars += cliff_bars(by_name[name])
    return bars
