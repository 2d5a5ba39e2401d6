# SPDX-License-Identifier: Apache-2.0
"""Process sets: operations among some of the ranks."""

from __future__ import annotations

import ctypes
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

from horovod.common import abi
from horovod.common.arguments import show
from horovod.common.exceptions import HorovodUnsupportedError
from horovod.common.library import load
from horovod.common.status import check


class ProcessSet:
    """
    A set of ranks. It can be used once it was given to `init`.

    >>> even = ProcessSet([2, 0])
    >>> print(even)
    ProcessSet(process_set_id=None, ranks=[0, 2], mpi_comm=None)
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm: Any = None

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        if hasattr(ranks_or_comm, "Get_rank"):
            raise HorovodUnsupportedError("ProcessSet(communicator) does not exist in this release yet: give ranks")
        try:
            ranks = list(ranks_or_comm)
        except TypeError:
            raise ValueError(f"ProcessSet needs ranks, not {ranks_or_comm!r}") from None
        if not all(isinstance(rank, numbers.Integral) and not isinstance(rank, bool) for rank in ranks):
            raise ValueError(f"ProcessSet needs whole numbers as ranks, not {ranks}")
        self.ranks = sorted(int(rank) for rank in ranks)

    def size(self) -> int | None:
        """Return the number of members; None before the set was registered by `init`."""
        if self.process_set_id is None:
            return None
        return len(ranks_of(self.process_set_id))

    def rank(self) -> int | None:
        """Return this process's number in the set; None before registration. Not a member: ValueError."""
        if self.process_set_id is None:
            return None
        ranks, own = ranks_of(self.process_set_id), _own_rank()
        if own not in ranks:
            raise ValueError(f"rank {own} is not a member of {self}")
        return ranks.index(own)

    def included(self) -> bool | None:
        """Whether this process is a member; None before registration."""
        if self.process_set_id is None:
            return None
        return _own_rank() in ranks_of(self.process_set_id)

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"

    __repr__ = __str__


global_process_set = ProcessSet([])
global_process_set.process_set_id = 0

# The sets given to the last init; their ids end with it.
_registered: list[ProcessSet] = []


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Not in this release yet: give all sets to `init`."""
    raise HorovodUnsupportedError(
        "add_process_set: dynamic process sets do not exist in this release yet; "
        "pass the set to hvd.init(process_sets=[...])"
    )


def remove_process_set(process_set: ProcessSet) -> bool:
    """Return False for the global and for an unregistered set; removing another is not in this release yet."""
    _check_type(process_set)
    if process_set.process_set_id in (None, 0):
        return False
    raise HorovodUnsupportedError("remove_process_set: dynamic process sets do not exist in this release yet")


def id_of(process_set: Any) -> int:
    """Return the id that operations need."""
    if type(process_set) is not ProcessSet:
        _check_type(process_set)
    identifier = process_set.process_set_id
    if identifier is None:
        raise ValueError(f"process_set={process_set} is not registered: pass it to hvd.init(process_sets=[...])")
    if type(identifier) is not int or not 0 <= identifier < 2**31:
        raise ValueError(f"process_set={process_set} has an id that no process set has: leave that to hvd.init")
    return identifier


def _check_type(process_set: Any) -> None:
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"{show('process_set', process_set)} is no process set: give an hvd.ProcessSet that init knows")


def ranks_of(identifier: int) -> list[int]:
    """Return the global ranks of a registered set; ValueError if there is none with this id."""
    size = ctypes.c_int32()
    capacity = 64
    while True:
        ranks = (ctypes.c_int32 * capacity)()
        check(load().hvd_process_set_ranks(None, identifier, ranks, capacity, ctypes.byref(size)))
        if size.value <= capacity:
            return list(ranks[: size.value])
        capacity = size.value


def ids_and_ranks() -> dict[int, list[int]]:
    """Return all registered sets."""
    count = ctypes.c_int32()
    check(load().hvd_process_set_count(None, ctypes.byref(count)))
    ids = (ctypes.c_int32 * count.value)()
    check(load().hvd_process_set_ids(None, ids, count.value, ctypes.byref(count)))
    return {identifier: ranks_of(identifier) for identifier in ids[: count.value]}


def registered(sets: list[ProcessSet]) -> None:
    """Take note of a successful init with these sets."""
    global_process_set.ranks = ranks_of(0)
    for identifier, one in enumerate(sets, start=1):
        one.process_set_id = identifier
    _registered[:] = sets


def forget() -> None:
    """Take note of a shutdown."""
    global_process_set.ranks = []
    for one in _registered:
        one.process_set_id = None
    _registered.clear()


def _own_rank() -> int:
    value = ctypes.c_int32()
    check(load().hvd_query(None, abi.QUERY_RANK, ctypes.byref(value)))
    return value.value
