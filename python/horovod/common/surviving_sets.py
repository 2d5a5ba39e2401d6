# SPDX-License-Identifier: Apache-2.0
"""
Process sets of an elastic job: a set keeps its id and those of its members that are left.

Ranks change from view to view, so members are the numbers of their processes. The text for horovodrun has a word for
each set: its id, a * if the program gave it to `init` in this place, and its members, as in "1*:0,3 2:0". It is "-" for
a job without sets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from horovod.common.membership import View

_NO_SETS = "-"


def describe(sets: Mapping[int, Sequence[int]], given: Collection[int], view: View) -> str:
    """Return the text for sets by id, with their ranks in a view. `given`: ids of those that were given to `init`."""
    words = []
    for identifier, ranks in sets.items():
        members = ",".join(view.members[rank] for rank in ranks if rank < view.size)
        words.append(f"{identifier}{'*' if identifier in given else ''}:{members}")
    return " ".join(words) or _NO_SETS


def ranks_in(view: View) -> list[list[int]]:
    """Return the ranks that sets 1, 2, ... have in a view. A set that no member is left of has none."""
    rank_of = {member: rank for rank, member in enumerate(view.members)}
    found = {
        identifier: sorted(rank_of[member] for member in members if member in rank_of)
        for identifier, (_, members) in _read(view.sets).items()
    }
    return [found.get(identifier, []) for identifier in range(1, max(found, default=0) + 1)]


def given_in(view: View) -> set[int]:
    """Return the ids of the sets that the program gave to `init`."""
    return {identifier for identifier, (is_given, _) in _read(view.sets).items() if is_given}


def _read(text: str) -> dict[int, tuple[bool, list[str]]]:
    sets = {}
    for word in text.split() if text != _NO_SETS else []:
        identifier, _, members = word.partition(":")
        sets[int(identifier.rstrip("*"))] = (identifier.endswith("*"), members.split(","))
    return sets
