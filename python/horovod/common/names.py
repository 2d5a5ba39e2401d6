# SPDX-License-Identifier: Apache-2.0
"""
Names of operations. Ranks agree by name, so equal programs must make equal names.

Unnamed operations are counted per kind and process set: a rank that is in more sets than another stays in step with it.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

from horovod.common.arguments import name_bytes

_counters: defaultdict[tuple[str, int], itertools.count] = defaultdict(itertools.count)
# Numbers of operations that the library refused: the other ranks use them for the next one.
_returned: dict[tuple[str, int], list[int]] = {}

# Programs use the same few names in every step, and looking one up is faster than checking it again.
_known: dict[tuple[str, str], bytes] = {}
_NAMES_KEPT = 4096


def wire_name(kind: str, name: str | None, process_set: int) -> bytes:
    """
    Return the name that all ranks must give: `kind.name`, or `kind.noname.N` for the N-th unnamed one.

    Call it when all other arguments are known to be good: a number is used up, and the other ranks use it for the same.
    """
    if name is None:
        return b"%s.noname.%d" % (kind.encode(), _next_number((kind, process_set)))
    if type(name) is not str:
        return b"%s.%s" % (kind.encode(), name_bytes(name))
    known = _known.get((kind, name))
    if known is None:
        known = b"%s.%s" % (kind.encode(), name_bytes(name))
        if len(_known) >= _NAMES_KEPT:
            _known.clear()
        _known[kind, name] = known
    return known


def _next_number(key: tuple[str, int]) -> int:
    try:
        if key in _returned:
            return _returned[key].pop()
    except (IndexError, KeyError):  # there is none, or another thread was faster
        pass
    return next(_counters[key])


def take_back(name: bytes, process_set: int) -> None:
    """Give back the number of an unnamed operation that was not submitted; the next unnamed one uses it."""
    kind, noname, number = name.partition(b".noname.")
    number = number.partition(b"_")[0]
    if noname and number.isdigit():
        _returned.setdefault((kind.decode(), process_set), []).append(int(number))


def forget(process_set: int) -> None:
    """Start again from 0 in one set: all members of the next set with this id then count from the same number."""
    for table in (_counters, _returned):
        for key in [key for key in table if key[1] == process_set]:
            del table[key]


def reset() -> None:
    """Start again from 0: after init all ranks count alike, also those that have just been started."""
    _counters.clear()
    _returned.clear()
