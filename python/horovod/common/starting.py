# SPDX-License-Identifier: Apache-2.0
"""
hvd_init in a way that Ctrl-C ends: on a thread of its own, because a wait inside the library sees no signals.

An attempt that was interrupted goes on in the background until all ranks are there or its time is over. The next
`start` with the same process sets joins it. If nobody does and it succeeds, this rank leaves the job at once, so that
the others get an error and do not wait for it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import faulthandler
import os
import threading

from horovod.common import abi
from horovod.common.library import load
from horovod.common.status import init_exception

# Guards `_attempt` and the members of the one that it names.
_lock = threading.Lock()
_attempt: _Attempt | None = None


@dataclasses.dataclass(frozen=True)
class Members:
    """Which processes of those that were started are the job; by default all."""

    ranks: tuple[int, ...] = ()
    mpi_comm: int | None = None  # address of an MPI_Comm


EVERYBODY = Members()


@dataclasses.dataclass(frozen=True)
class Place:
    """Which rank this process is and where the others are met, where that is known without a launcher's variables."""

    rank: int = -1
    size: int = -1
    address: str = ""
    timeout_s: float = 0.0  # 0: HOROVOD_START_TIMEOUT


BY_LAUNCHER = Place()


class _Attempt:
    """
    One call of hvd_init.

    Thread safety: `over` may be waited for by anybody; the result is read after that, the rest under the lock.
    """

    def __init__(
        self, process_sets: list[list[int]], dynamic: bool, members: Members, place: Place, survived: bool
    ) -> None:
        self.what = (process_sets, dynamic, members, place, survived)
        self.waiting = 0  # callers
        self.over = threading.Event()
        self.error: Exception | None = None

    def begin(self) -> None:
        """Start the call. An interruption leaves it under way, so the attempt must be known before."""
        global _attempt
        try:
            threading.Thread(target=self._run, name="hvd init", daemon=True).start()
        except RuntimeError:  # the system has no thread for it
            with _lock:
                _attempt = None
            raise

    def _run(self) -> None:
        global _attempt
        process_sets, dynamic, members, place, survived = self.what
        sizes = [len(ranks) for ranks in process_sets]
        ranks = [rank for ranks in process_sets for rank in ranks]
        options = abi.InitOptions(struct_size=ctypes.sizeof(abi.InitOptions), generation=-1)
        options.rank, options.size, options.timeout_s = place.rank, place.size, place.timeout_s
        options.rendezvous = place.address.encode() or None
        options.process_set_count = len(sizes)
        options.process_set_sizes = (ctypes.c_int32 * len(sizes))(*sizes)
        options.process_set_ranks = (ctypes.c_int32 * len(ranks))(*ranks)
        options.flags = abi.INIT_DYNAMIC_PROCESS_SETS if dynamic else 0
        if faulthandler.is_enabled():
            options.flags |= abi.INIT_HANDLERS_ARE_FATAL
        options.flags |= abi.INIT_SURVIVING_PROCESS_SETS if survived else 0
        options.mpi_comm = members.mpi_comm
        options.comm_rank_count = len(members.ranks)
        options.comm_ranks = (ctypes.c_int32 * len(members.ranks))(*members.ranks)
        code = load().hvd_init(ctypes.byref(options), None)
        if code != abi.OK:
            self.error = init_exception(code)  # here: the text is this thread's
        with _lock:
            if code == abi.OK and self.waiting == 0:
                load().hvd_shutdown(None)
            _attempt = None
            self.over.set()


def start(
    process_sets: list[list[int]],
    dynamic: bool,
    members: Members = EVERYBODY,
    place: Place = BY_LAUNCHER,
    survived: bool = False,
) -> None:
    """
    Join the job; returns when every rank has.

    `dynamic`: sets may be added and removed later. `survived`: the sets are those of an earlier generation, and empty
    ones do not exist.
    """
    global _attempt
    what = (process_sets, dynamic, members, place, survived)
    while True:
        with _lock:
            is_new = _attempt is None
            if _attempt is None:
                _attempt = _Attempt(*what)
            attempt = _attempt
            joined = attempt.what == what
            attempt.waiting += joined
        try:
            if is_new:
                attempt.begin()
            attempt.over.wait()
        except BaseException:
            if joined:
                _give_up(attempt)
            raise
        if joined:
            break
    if attempt.error is not None:
        raise attempt.error


def _give_up(attempt: _Attempt) -> None:
    with _lock:
        attempt.waiting -= 1
        if attempt.waiting == 0 and attempt.over.is_set() and attempt.error is None:
            load().hvd_shutdown(None)


def under_way() -> bool:
    """Whether an attempt that was interrupted still goes on. The library's shutdown would wait for its end."""
    return _attempt is not None


def _forget_attempt() -> None:
    # The thread of an attempt is not in a forked child.
    global _lock, _attempt
    _lock = threading.Lock()
    _attempt = None


os.register_at_fork(after_in_child=_forget_attempt)
