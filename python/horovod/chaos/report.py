# SPDX-License-Identifier: Apache-2.0
"""What a run found, as a table for people and as JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field

from horovod import __version__
from horovod.chaos.plan import EVERY_KIND, HARMLESS, Options
from horovod.chaos.runner import JobResult
from horovod.chaos.verdict import BLAME, HANG, LEAK, OTHER, WRONG


@dataclass
class Row:
    """What is known about one kind of fault. A problem counts for every fault of its round."""

    injected: int = 0
    named: int = 0
    misnamed: int = 0
    seconds: list[float] = field(default_factory=list)
    problems: dict[str, int] = field(default_factory=dict)


@dataclass
class Summary:
    """All of a run."""

    options: Options
    seconds: float
    rows: dict[str, Row]
    jobs: int
    rounds: int
    ranks: int
    checked: int
    problems: dict[str, int]
    impossible: dict[str, str]
    unauthenticated: list[bool]  # rounds whose tensors were changed on a path without authentication: a wrong result?

    @property
    def injected(self) -> int:
        """The number of faults."""
        return sum(row.injected for row in self.rows.values())


def summarize(options: Options, results: Sequence[JobResult], seconds: float) -> Summary:
    """Add up what came out of the jobs."""
    rows = {kind: Row() for kind in options.only}
    problems = dict.fromkeys((WRONG, HANG, LEAK, BLAME, OTHER), 0)
    impossible: dict[str, str] = {}
    for result in results:
        for kind in result.injected:
            rows[kind].injected += 1
        for kind, right, time in result.blames:
            rows[kind].named += right
            rows[kind].misnamed += not right
            rows[kind].seconds.append(time)
        for problem, _, kinds in result.problems:
            problems[problem] += 1
            for kind in set(kinds):
                rows[kind].problems[problem] = rows[kind].problems.get(problem, 0) + 1
        impossible.update(dict(result.impossible))
    return Summary(
        options=options,
        seconds=seconds,
        rows=rows,
        jobs=len(results),
        rounds=sum(result.rounds for result in results),
        ranks=sum(result.ranks for result in results),
        checked=sum(result.checked for result in results),
        problems=problems,
        impossible=impossible,
        unauthenticated=[wrong for result in results for wrong in result.unauthenticated],
    )


_HEADER = ("fault", "injected", "errors", "named right", "median", "worst", "wrong", "hangs", "leaks", "other")


def _cells(kind: str, row: Row) -> list[str]:
    times = sorted(row.seconds)
    middle = f"{times[len(times) // 2] * 1000:.0f} ms" if times else "-"
    worst = f"{times[-1] * 1000:.0f} ms" if times else "-"
    other = row.problems.get(OTHER, 0) + row.problems.get(BLAME, 0)
    counts = [row.problems.get(problem, 0) for problem in (WRONG, HANG, LEAK)]
    named = f"{row.named}" if times else "-"
    return [kind, str(row.injected), str(len(times)), named, middle, worst, *map(str, counts), str(other)]


def table(summary: Summary) -> str:
    """Return the table, in Markdown."""
    rows = [_cells(kind, row) for kind, row in summary.rows.items()]
    everything = Row(
        injected=summary.injected,
        named=sum(row.named for row in summary.rows.values()),
        seconds=[time for row in summary.rows.values() for time in row.seconds],
        problems=summary.problems,
    )
    rows.append(_cells("all", everything))
    widths = [max(len(row[i]) for row in [list(_HEADER), *rows]) for i in range(len(_HEADER))]

    def line(cells: Sequence[str]) -> str:
        rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:]))
        return f"| {cells[0].ljust(widths[0])} | {' | '.join(rest)} |"

    rule = f"|{'-' * (widths[0] + 2)}|" + "|".join(f"{'-' * (width + 1)}:" for width in widths[1:]) + "|"
    return "\n".join([line(_HEADER), rule, *map(line, rows)])


def text(summary: Summary) -> str:
    """Return the whole report, in Markdown."""
    options = summary.options
    lines = [
        f"{summary.injected} faults in {summary.rounds} rounds of {summary.jobs} jobs with {options.least_ranks} to "
        f"{options.most_ranks} ranks ({', '.join(options.transports)}), seed {options.seed}, {summary.seconds:.0f} s. "
        f"{summary.checked} results were checked.",
        "",
        table(summary),
        "",
        ", ".join(f"{problem}: {count}" for problem, count in summary.problems.items()) + ".",
    ]
    if errors := sum(len(row.seconds) for row in summary.rows.values()):
        right = sum(row.named for row in summary.rows.values())
        lines.append(f"Blame was right in {right} of {errors} errors ({100 * right / errors:.2f} %).")
    if changed := summary.unauthenticated:
        lines.append(
            f"Tensors were changed on a path without authentication in {len(changed)} rounds, with wrong results in "
            f"{sum(changed)}; these are counted here alone."
        )
    for kind, why in summary.impossible.items():
        lines.append(f"Not possible here, and not counted: {kind}: {why}.")
    return "\n".join(lines)


def as_json(summary: Summary) -> str:
    """Return the report for programs."""
    return json.dumps(
        {
            "version": __version__,
            "machine": f"{platform.system()} {platform.release()}, {os.cpu_count()} processors",
            "seed": summary.options.seed,
            "ranks": [summary.options.least_ranks, summary.options.most_ranks],
            "transports": summary.options.transports,
            "seconds": round(summary.seconds, 1),
            "faults": summary.injected,
            "jobs": summary.jobs,
            "rounds": summary.rounds,
            "checked": summary.checked,
            "problems": summary.problems,
            "impossible": summary.impossible,
            "unauthenticated": {"rounds": len(summary.unauthenticated), "wrong": sum(summary.unauthenticated)},
            "kinds": {
                kind: {
                    "injected": row.injected,
                    "errors": len(row.seconds),
                    "named_right": row.named,
                    "worst_s": round(max(row.seconds, default=0.0), 3),
                    "problems": row.problems,
                }
                for kind, row in summary.rows.items()
            },
        },
        indent=2,
    )


def describe_kinds() -> str:
    """Return one line for each kind of fault."""
    effect = {HARMLESS: "the job goes on"}
    return "\n".join(
        f"  {kind:12}{value.text}; {effect.get(value.effect, 'the others get an error')}"
        for kind, value in EVERY_KIND.items()
    )
