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

# Programs use the same few names in every step, and looking one up is faster than checking it again.
_known: dict[tuple[str, str], bytes] = {}
_NAMES_KEPT = 4096


def wire_name(kind: str, name: str | None, process_set: int) -> bytes:
    """
    Return the name that all ranks must give: `kind.name`, or `kind.noname.N` for the N-th unnamed one.

    Call it when all other arguments are known to be good: a number is used up, and the other ranks use it for the same.
    """
    if name is None:
        return b"%s.noname.%d" % (kind.encode(), next(_counters[kind, process_set]))
    if type(name) is not str:
        return b"%s.%s" % (kind.encode(), name_bytes(name))
    known = _known.get((kind, name))
    if known is None:
        known = b"%s.%s" % (kind.encode(), name_bytes(name))
        if len(_known) >= _NAMES_KEPT:
            _known.clear()
        _known[kind, name] = known
    return known


def forget(process_set: int) -> None:
    """Start again from 0 in one set: whoever gets its id next counts alike on all members."""
    for key in [key for key in _counters if key[1] == process_set]:
        del _counters[key]


def reset() -> None:
    """Start again from 0: after init all ranks count alike, also those that have just been started."""
    _counters.clear()
