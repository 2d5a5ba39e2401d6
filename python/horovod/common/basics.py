# SPDX-License-Identifier: Apache-2.0
"""Life cycle and ranks, the same in every framework's module."""

from __future__ import annotations

import atexit
import builtins
import ctypes
import os
import sys
from collections.abc import Sequence
from typing import Any

from horovod.common import (
    abi,
    communicators,
    family,
    in_sync,
    membership,
    names,
    process_sets,
    repeated,
    request,
    starting,
    status,
    surviving_sets,
)
from horovod.common.arguments import show
from horovod.common.exceptions import HorovodInternalError
from horovod.common.library import load
from horovod.common.process_sets import ProcessSet
from horovod.common.status import check

_exit_registered = False
# What a process that comes to a running job gave to `init`. It joins when it enters its training function, so that
# nobody waits while it imports and builds.
_postponed: tuple[list[ProcessSet], bool] | None = None
_given: tuple[list[ProcessSet], bool] = ([], False)  # to the `init` that made the engine
_PROVISIONAL = {
    abi.QUERY_RANK: ("HOROVOD_RANK", 1),  # never 0, which is a rank that holds the state
    abi.QUERY_SIZE: ("HOROVOD_SIZE", 2),
    abi.QUERY_LOCAL_RANK: ("HOROVOD_LOCAL_RANK", 0),
    abi.QUERY_LOCAL_SIZE: ("HOROVOD_LOCAL_SIZE", 1),
    abi.QUERY_CROSS_RANK: ("HOROVOD_CROSS_RANK", 0),
    abi.QUERY_CROSS_SIZE: ("HOROVOD_CROSS_SIZE", 1),
    abi.QUERY_IS_HOMOGENEOUS: ("", 1),
}


def _note_failure(error: BaseException | None) -> None:
    """Have shutdown hand on why this rank leaves. Errors of Horovod's own say more about another rank than this one."""
    if error is None or isinstance(error, HorovodInternalError) or "Horovod has been shut down" in str(error):
        return
    if isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return
    text = " ".join(f"{type(error).__name__}: {error}".split())
    load().hvd_note_failure(None, text.replace("\0", " ").encode("utf-8", "replace"))


def _uncaught() -> BaseException | None:
    """Return the exception that ends this program. An interactive one goes on after an exception."""
    if hasattr(sys, "ps1") or sys.flags.interactive or hasattr(builtins, "__IPYTHON__"):
        return None
    return getattr(sys, "last_value", None)


def _shutdown_at_exit() -> None:
    # Tells the peers that this rank leaves in good order. What fails now has nobody left to be told.
    if not starting.under_way():
        _note_failure(_uncaught())
        load().hvd_shutdown(None)


class HorovodBasics:
    """
    The functions that need no tensor. All objects of this class speak for the one engine of the process.

    Thread safety: `init` and `shutdown` must not run at the same time as each other; everything else may.
    """

    def init(self, comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
        """
        Join the job; returns when every rank has. Does nothing if this rank has joined before.

        Rank and size come from whatever started this process: horovodrun, mpirun, srun, torchrun, or HOROVOD_RANK,
        HOROVOD_SIZE and HOROVOD_RENDEZVOUS_ADDR set by hand; without any of these it is a job of size 1. `comm` makes
        the job smaller: a list of the ranks that belong to it, or an mpi4py communicator; only those call `init`.
        `process_sets` lists the same sets on every rank, or is "dynamic" for a job that uses `add_process_set`. Ctrl-C
        ends the wait.

        >>> import horovod.numpy as hvd
        >>> hvd.init()
        >>> hvd.size() >= 1
        True
        """
        if self.is_initialized():
            return
        if comm is not None and membership.enabled():
            raise ValueError(f"{show('comm', comm)}: horovodrun selects the members of an elastic job; leave comm out")
        members = communicators.members_of(comm)
        dynamic = isinstance(process_sets, str) and process_sets.lower() == "dynamic"
        family.refuse_child_of_rank()
        sets = [] if dynamic else _checked_sets(process_sets)
        if membership.is_newcomer():
            _postpone((sets, dynamic))
            repeated.forget()  # rank and size are there, and not yet those of the job
        else:
            _init(sets, dynamic, members, starting.BY_LAUNCHER)

    def enter(self) -> None:
        """Join a running elastic job, if `init` left that to the training function."""
        if _postponed is not None:
            sets, dynamic = _postponed
            _postpone(None)
            _init(sets, dynamic, starting.EVERYBODY, starting.BY_LAUNCHER)

    def init_at(self, place: starting.Place) -> None:
        """As `init`, for bindings that know from elsewhere which rank this is. Does nothing if initialized."""
        if not self.is_initialized():
            _init([], False, starting.EVERYBODY, place)

    def shutdown(self) -> None:
        """Leave the job. Pending operations fail; `init` may follow. Does nothing if not initialized."""
        if starting.under_way():
            return
        _postpone(None)
        family.leave()
        membership.leave()
        _note_failure(sys.exc_info()[1])  # in a `finally`, or where an exception is handled
        request.end()
        process_sets.forget()

    def reform(self) -> None:
        """Leave this generation of an elastic job and join the next. Process sets keep the members that are left."""
        sets, dynamic = _given
        kept, text = process_sets.kept(), ""
        view = membership.view()
        if view is not None and load().hvd_is_initialized(None):
            given = {identifier for identifier, one in enumerate(sets, start=1) if one.process_set_id == identifier}
            text = surviving_sets.describe(process_sets.others(), given, view)
        self.shutdown()
        membership.keep_sets(text)
        _init(sets, dynamic, starting.EVERYBODY, starting.BY_LAUNCHER, kept)

    def is_initialized(self) -> bool:
        """Whether `init` was called and `shutdown` was not."""
        return _postponed is not None or bool(load().hvd_is_initialized(None))

    def rank(self) -> int:
        """Return this process's number in the job, from 0."""
        return _query(abi.QUERY_RANK)

    def size(self) -> int:
        """Return the number of processes in the job."""
        return _query(abi.QUERY_SIZE)

    def local_rank(self) -> int:
        """Return this process's number among those of its host."""
        return _query(abi.QUERY_LOCAL_RANK)

    def local_size(self) -> int:
        """Return the number of processes on this host."""
        return _query(abi.QUERY_LOCAL_SIZE)

    def cross_rank(self) -> int:
        """Return the index of this host among the hosts that have this local rank."""
        return _query(abi.QUERY_CROSS_RANK)

    def cross_size(self) -> int:
        """Return the number of hosts that have this local rank."""
        return _query(abi.QUERY_CROSS_SIZE)

    def is_homogeneous(self) -> bool:
        """Whether every host has the same number of processes."""
        return bool(_query(abi.QUERY_IS_HOMOGENEOUS))

    def start_timeline(self, file_path: str, mark_cycles: bool = False) -> None:
        """
        Begin a timeline: what happened to each tensor when, for chrome://tracing and ui.perfetto.dev.

        Rank 0 writes the file; with HOROVOD_TIMELINE_ALL_RANKS=1 every rank does (t.json, t.1.json, ...). A timeline
        that is being written is finished first.
        """
        if not isinstance(file_path, (str, os.PathLike)):
            raise TypeError(f"file_path={file_path!r} is no path: give a str or os.PathLike")
        path = os.fsencode(file_path)
        if b"\0" in path:
            raise ValueError(f"file_path={file_path!r} has a character NUL, which no file name can have")
        check(load().hvd_timeline_start(None, path, bool(mark_cycles)))

    def stop_timeline(self) -> None:
        """End the timeline; the file is complete when this returns."""
        check(load().hvd_timeline_stop(None))

    def mpi_threads_supported(self) -> bool:
        """Whether MPI may be called from several threads, also by mpi4py. ValueError when MPI is not enabled."""
        if not self.mpi_enabled():
            raise ValueError("mpi_threads_supported() has no answer: MPI is not enabled")
        return bool(_query(abi.QUERY_MPI_THREADS))

    def mpi_enabled(self) -> bool:
        """Whether MPI brought the ranks of this job together, or carries its operations."""
        return self.is_initialized() and bool(_query(abi.QUERY_MPI_ENABLED))

    def mpi_built(self) -> bool:
        """Whether this build can use MPI. It can always: the library is looked for when a job needs it."""
        return True

    def gloo_enabled(self) -> bool:
        """Whether operations go through Gloo. They never do: hvd's own engine takes its place."""
        return False

    def gloo_built(self) -> bool:
        """Whether this build contains Gloo. It never does: hvd's own engine takes its place, also for `--gloo`."""
        return False

    def nccl_built(self) -> int:
        """Return NCCL's version code, or 0 when this build cannot use NCCL."""
        return 0

    def ddl_built(self) -> bool:
        """Whether this build can use IBM's DDL."""
        return False

    def ccl_built(self) -> bool:
        """Whether this build can use Intel's oneCCL."""
        return False

    def cuda_built(self) -> bool:
        """Whether this build can use CUDA."""
        return False

    def rocm_built(self) -> bool:
        """Whether this build can use ROCm."""
        return False

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        return process_sets.ids_and_ranks()


def _postpone(what: tuple[list[ProcessSet], bool] | None) -> None:
    global _postponed
    _postponed = what
    status.expect_run(what is not None)


def _query(what: int) -> int:
    if _postponed is not None and what in _PROVISIONAL:
        name, least = _PROVISIONAL[what]
        return max(int(os.environ.get(name, least)), least)
    value = ctypes.c_int32()
    check(load().hvd_query(None, what, ctypes.byref(value)))
    return value.value


def _checked_sets(sets: Sequence[ProcessSet] | str | None) -> list[ProcessSet]:
    if isinstance(sets, str):
        raise ValueError(f'process_sets={sets!r}: give a list of ProcessSet or "dynamic"')
    try:
        sets = [] if sets is None else [one if isinstance(one, ProcessSet) else ProcessSet(one) for one in sets]
    except (TypeError, ValueError) as error:
        allowed = "give a list of ProcessSet or of lists of ranks"
        raise type(error)(f"{show('process_sets', sets)} cannot be used: {error}; {allowed}") from None
    seen: dict[tuple[int, ...], int] = {}
    for index, one in enumerate(sets):
        ranks = tuple(one.ranks or ())
        if any(not 0 <= rank < 2**31 for rank in ranks):
            raise ValueError(f"{show('process_sets', sets)}: set {index} names a rank that no job has")
        if ranks in seen:
            one.process_set_id = None
            raise ValueError(f"process sets {seen[ranks]} and {index} given to init have the same ranks {list(ranks)}")
        seen[ranks] = index
    return sets


def _join(ranks_of_sets: list[list[int]], dynamic: bool) -> membership.View:
    """Start in the next generation that can be started: members may be lost meanwhile."""
    failure = ""
    while True:
        membership.join(failure)
        view = membership.view()
        assert view is not None
        given = dict(enumerate(ranks_of_sets, start=1))
        membership.keep_sets(view.sets or surviving_sets.describe(given, given, view))
        try:
            if view.sets:
                starting.start(surviving_sets.ranks_in(view), dynamic, survived=True)
            else:
                starting.start(ranks_of_sets, dynamic)
            return view
        except HorovodInternalError as error:
            failure = str(error)


def _init(
    sets: list[ProcessSet],
    dynamic: bool,
    members: starting.Members,
    place: starting.Place,
    kept: list[tuple[int, ProcessSet]] | None = None,
) -> None:
    """Start. `kept`: the sets that this process had in the generation that it has left, by id."""
    global _exit_registered, _given
    ranks_of_sets = [list(one.ranks or ()) for one in sets]
    view = None
    if place is starting.BY_LAUNCHER and membership.enabled():
        view = _join(ranks_of_sets, dynamic)
    else:
        starting.start(ranks_of_sets, dynamic, members, place)
    _given = (sets, dynamic)
    if not _exit_registered:
        atexit.register(_shutdown_at_exit)
        _exit_registered = True
    if place is starting.BY_LAUNCHER:
        family.enter()
    names.reset()
    repeated.forget()
    if view is not None and view.sets:
        given = surviving_sets.given_in(view)
        newcomers = [(number, one) for number, one in enumerate(sets, start=1) if number in given]
        process_sets.survived(newcomers if kept is None else kept)
    else:
        process_sets.registered(sets)
    in_sync.restart()
