# SPDX-License-Identifier: Apache-2.0
"""What must be true of an elastic job after faults, judged from what its processes wrote down."""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from typing import Any

Event = dict[str, Any]


def judge(events: list[Event], hurt: dict[int, int], samples: int, errors: str, finishes: bool = True) -> list[str]:
    """
    Return what was wrong.

    `hurt` are the processes that were hurt, with the signal; `samples` those of an epoch; `errors` what horovodrun
    printed; `finishes`: the job was to reach its end.
    """
    return [
        *_unequal_weights(events),
        *_lost_commits(events),
        *_wrong_samples(events, samples),
        *(_lost_processes(events, hurt, errors) if finishes else []),
        *_blame(events, hurt, errors),
    ]


def _unequal_weights(events: list[Event]) -> list[str]:
    """Find members with other bits than the rest, and generations that began with other bits than their commit has."""
    found: dict[tuple, set] = defaultdict(set)
    for one in events:
        if one["event"] in ("commit", "enter", "done"):
            found[one["event"], one.get("generation"), one["number"]].add(one["digest"])
    problems = [f"ranks differ: {key}: {sorted(digests)}" for key, digests in found.items() if len(digests) > 1]
    newest: dict[int, str] = {}
    for one in sorted((one for one in events if one["event"] == "commit"), key=lambda one: one["generation"]):
        newest[one["number"], one["generation"]] = one["digest"]
    for one in events:
        if one["event"] == "enter":
            earlier = [g for n, g in newest if n == one["number"] and g < one["generation"]]
            if earlier and newest[one["number"], max(earlier)] != one["digest"]:
                problems.append(f"generation {one['generation']} began commit {one['number']} with other weights")
    return problems


def _lost_commits(events: list[Event]) -> list[str]:
    """Find commits that returned somewhere, and that those who went on did not hold."""
    problems, returned = [], 0
    for generation in sorted({one["generation"] for one in events if one["event"] == "enter"}):
        entered = [one["number"] for one in events if one["event"] == "enter" and one["generation"] == generation]
        if min(entered) < returned:
            problems.append(f"generation {generation} began at commit {min(entered)}, but {returned} had returned")
        own = [one["number"] for one in events if one["event"] == "commit" and one["generation"] == generation]
        returned = max([returned, *own])
    return problems


def _wrong_samples(events: list[Event], count: int) -> list[str]:
    """Find samples that are missing, or there too often, in what was committed at last."""
    last: dict[int, int] = {}
    for one in events:
        if one["event"] == "step":
            last[one["number"]] = max(last.get(one["number"], 0), one["generation"])
    end = max((one["number"] for one in events if one["event"] == "done"), default=0)
    taken: dict[int, list[int]] = defaultdict(list)
    sizes: dict[int, int] = defaultdict(int)
    for one in events:
        if one["event"] == "step" and one["generation"] == last[one["number"]] and one["number"] <= end:
            taken[one["epoch"]] += one["samples"]
            sizes[one["epoch"]] = max(sizes[one["epoch"]], one["size"])
    problems = []
    for epoch, found in taken.items():
        missing = set(range(count)) - set(found)
        if missing:
            problems.append(f"epoch {epoch} lost samples {sorted(missing)}")
        if len(found) - count >= sizes[epoch]:  # more than equal shares need
            problems.append(f"epoch {epoch} has {len(found)} samples of {count}")
    return problems


def _lost_processes(events: list[Event], hurt: dict[int, int], errors: str) -> list[str]:
    """Find members that were not hurt, have kept their slots, and are no members at the end."""
    entered = {one["pid"] for one in events if one["event"] == "enter"}
    done = {one["pid"] for one in events if one["event"] == "done"}
    removed = {int(pid) for pid in re.findall(r"\(pid (\d+)[^)]*\) leaves, because its slot was removed", errors)}
    return [f"process {pid} was not hurt and did not finish" for pid in sorted(entered - done - removed - set(hurt))]


def _blame(events: list[Event], hurt: dict[int, int], errors: str) -> list[str]:
    """
    Find lost members that horovodrun did not name with their signal, and named ones that were not hurt.

    SIGINT is a KeyboardInterrupt, which some programs end with an exit code.
    """
    ends = r"was killed by signal (?P<number>\d+)|ended with exit code \d+|did not respond"
    named = {}
    for found in re.finditer(rf"\(pid (\d+)[^)]*\) (?:{ends})", errors):
        other = signal.SIGINT if "exit code" in found[0] else signal.SIGSTOP
        named[int(found[1])] = int(found["number"] or other)
    entered = {one["pid"] for one in events if one["event"] == "enter"}
    problems = [f"process {pid} is blamed, but was not hurt" for pid in sorted(set(named) - set(hurt))]
    for pid in sorted(entered & set(hurt)):
        if named.get(pid) != hurt[pid]:
            problems.append(f"process {pid} was killed by signal {hurt[pid]}, but {named.get(pid)} is named")
    return problems
