# SPDX-License-Identifier: Apache-2.0
"""Process sets: operations among some of the ranks."""

from __future__ import annotations

import contextlib
import ctypes
import numbers
from collections.abc import Iterable, Sequence
from typing import Any, Callable

from horovod.common import abi, membership, names, repeated, status
from horovod.common.arguments import show
from horovod.common.exceptions import HorovodInternalError, HorovodUnsupportedError
from horovod.common.library import load
from horovod.common.set_changes import change
from horovod.common.status import check


class ProcessSet:
    """
    A set of ranks. Give it to `init` or `add_process_set` before you use it.

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
        """Return the number of members; None before the set was registered."""
        if self.process_set_id is None:
            return None
        return len(ranks_of(self.process_set_id))

    def rank(self) -> int | None:
        """Return this process's number in the set; None before registration. ValueError: it is no member."""
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

# The sets of this life of the engine; their ids end with it.
_registered: list[ProcessSet] = []


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """
    Make a set usable and return it, or the set of these ranks. Needs `init(process_sets="dynamic")`.

    All ranks of the job call it, members or not, with the same ranks; it returns when all have. ValueError: there is a
    set with these ranks already, or the job is not a dynamic one.

    >>> import horovod.numpy as hvd
    >>> hvd.shutdown()
    >>> hvd.init(process_sets="dynamic")
    >>> hvd.add_process_set([0])
    Traceback (most recent call last):
        ...
    ValueError: the process set has the same ranks as process set 0: use that one
    """
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if added.process_set_id is not None:
        raise ValueError(f"process_set={added} is registered already")
    ranks = added.ranks or []
    if any(not 0 <= rank < 2**31 for rank in ranks):
        raise ValueError(f"{show('process_set', process_set)} names a rank that no job has")
    identifier = ctypes.c_int32()

    def succeeded() -> None:
        names.forget(identifier.value)
        repeated.forget()
        added.process_set_id = identifier.value
        _registered.append(added)

    array = (ctypes.c_int32 * len(ranks))(*ranks)
    _change(lambda: load().hvd_process_set_add(None, array, len(ranks), ctypes.byref(identifier)), succeeded)
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """
    Remove a set and return True; False for the global one and for one that is not registered.

    All ranks of the job call it; it returns when all have, and the set's operations are over. The object has no id then
    and may be added again; another set may get the id. ValueError: the job is not a dynamic one.
    """
    _check_type(process_set)
    if process_set.process_set_id in (None, 0):
        return False
    identifier = id_of(process_set)

    def succeeded() -> None:
        process_set.process_set_id = None
        for one in [one for one in _registered if one.process_set_id == identifier]:
            one.process_set_id = None
        _registered[:] = [one for one in _registered if one.process_set_id is not None]

    _change(lambda: load().hvd_process_set_remove(None, identifier), succeeded)
    return True


def _change(call: Callable[[], int], succeeded: Callable[[], None]) -> None:
    try:
        change(call, succeeded)
    except HorovodInternalError as error:
        # Ranks that disagree are an internal error; a job that has no dynamic sets is one of this call.
        if "HOROVOD_DYNAMIC_PROCESS_SETS" not in str(error):
            raise
        raise ValueError(str(error)) from None


def id_of(process_set: Any) -> int:
    """Return the id that operations need."""
    if type(process_set) is not ProcessSet:
        _check_type(process_set)
    identifier = process_set.process_set_id
    if identifier is None:
        raise ValueError(f"process_set={process_set} is not registered: give it to hvd.init or add_process_set")
    if type(identifier) is not int or not 0 <= identifier < 2**31:
        raise ValueError(f"process_set={process_set} has an id that no process set has: leave that to Horovod")
    return identifier


def takes_part(process_set: ProcessSet) -> bool:
    """
    Whether this rank has others to reduce with, in a set: in an elastic job at some time.

    A process that comes to a running job will be a member of the global set alone.
    """
    if status.expects_run():
        _check_type(process_set)
        return process_set.process_set_id == 0
    ranks = ranks_of(id_of(process_set))
    return (len(ranks) > 1 or membership.enabled()) and _own_rank() in ranks


def _check_type(process_set: Any) -> None:
    if not isinstance(process_set, ProcessSet):
        raise TypeError(
            f"{show('process_set', process_set)} is no process set: give an hvd.ProcessSet that is registered"
        )


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
    sets = {}
    for identifier in ids[: count.value]:
        with contextlib.suppress(ValueError):  # removed since, by another thread or by a call that timed out
            sets[identifier] = ranks_of(identifier)
    return sets


def registered(sets: list[ProcessSet]) -> None:
    """Take note of a successful init with these sets."""
    global_process_set.ranks = ranks_of(0)
    for identifier, one in enumerate(sets, start=1):
        one.process_set_id = identifier
    _registered[:] = sets


def others() -> dict[int, list[int]]:
    """Return all registered sets but the global one."""
    return {identifier: ranks for identifier, ranks in ids_and_ranks().items() if identifier != 0}


def kept() -> list[tuple[int, ProcessSet]]:
    """Return the sets that the program has registered, with their ids: for `survived`, after a shutdown."""
    return [(one.process_set_id, one) for one in _registered if one.process_set_id is not None]


def survived(sets: list[tuple[int, ProcessSet]]) -> None:
    """Take note of an init with sets of an earlier generation. Sets without members are registered no more."""
    registered([])
    there = ids_and_ranks()
    for identifier, one in sets:
        if identifier in there:
            one.process_set_id, one.ranks = identifier, there[identifier]
            _registered.append(one)


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
