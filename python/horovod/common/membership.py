# SPDX-License-Identifier: Apache-2.0
"""
What a process of an elastic job says to horovodrun and learns from it.

The channel is the job's store. A process that is ready for a generation says so under its own key, and waits for the
view: who the members are, and which of them it is. `init` does both. After `shutdown` a process can do the same again,
as often as members come and go, and keeps all that it has in memory.

  elastic/ready/ID         this process is ready; its request number, what it left and why, what it holds, its sets
  elastic/view/ID/REQUEST  the answer: a view, or that the job needs this process no more
  elastic/news/K           the K-th change of hosts of the job: generation, number, kind
  elastic/committed/ID     the first commit of a generation is complete
  elastic/done/ID          the program's training function has returned here
"""

from __future__ import annotations

import ctypes
import dataclasses
import faulthandler
import os
import signal
import threading
import time

from horovod.common import abi
from horovod.common.exceptions import HorovodInternalError
from horovod.common.library import load
from horovod.common.status import check, last_error

_ID = "HOROVOD_ELASTIC_ID"
_SLICE_S = 1.0  # Ctrl-C waits for no longer
_NEWS_S = 600.0  # what one wait of the listener lasts
_CONNECT_S = 30.0
_LONGEST = 1 << 18  # of an answer
_LONGEST_CAUSE = 512
# horovodrun sends it to a process that was left behind and does not come back, before it kills the process.
_PRINT_STACK = signal.SIGRTMAX - 2

NONE, REMOVED, ADDED, MIXED = 0, 1, 2, 3


@dataclasses.dataclass(frozen=True)
class View:
    """The members of one generation, and which of them this process is."""

    generation: int
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    members: tuple[str, ...]  # ids of processes, by rank
    synced: tuple[int, ...]  # ranks that hold the agreed commit; rank 0 is one of them if anybody is
    commit: int  # the agreed commit; -1: nobody holds one
    reason: str  # why the view was formed, one line
    sets: str = ""  # process sets as surviving_sets.py writes them; empty: those that the program gives to `init`


class _Store:
    """
    A client of the job's store.

    Thread safety: one thread at a time.
    """

    def __init__(self) -> None:
        self._store = ctypes.c_void_p()
        address = os.environ.get("HOROVOD_RENDEZVOUS_ADDR", "")
        token = os.environ.get("HOROVOD_TOKEN_FILE")
        code = load().hvd_store_connect(
            address.encode(), token.encode() if token else None, _CONNECT_S, ctypes.byref(self._store)
        )
        check(code)

    def set(self, key: str, value: str) -> None:
        data = value.encode()
        check(load().hvd_store_set(self._store, key.encode(), data, len(data)))

    def get(self, key: str, timeout_s: float) -> str | None:
        """Return the value, or None if it is not there in time."""
        buffer = ctypes.create_string_buffer(_LONGEST)
        size = ctypes.c_uint64()
        code = load().hvd_store_get(self._store, key.encode(), timeout_s, buffer, _LONGEST, ctypes.byref(size))
        if code == abi.DEADLINE_EXCEEDED:
            return None
        check(code)
        return buffer.raw[: size.value].decode()


class _Member:
    """
    The part that this process has in its job.

    Thread safety: the listener writes `update` alone, as a whole; all else belongs to the thread that calls `init`.
    """

    def __init__(self) -> None:
        if signal.getsignal(_PRINT_STACK) is signal.SIG_DFL:
            faulthandler.register(_PRINT_STACK, file=2, all_threads=True)
        self.store = _Store()
        self.request = 0
        self.view: View | None = None
        self.cause = ""
        self.sets = ""  # what rank 0 tells the members of the next view
        self.held = (0, -1)  # generation in which it was aligned, newest commit
        self.confirmed = 0  # the last generation whose first commit was announced
        self.update = (0, 0, NONE)  # generation, number, kind


_member: _Member | None = None


def enabled() -> bool:
    """Whether this process can leave a generation and join the next: horovodrun started it for an elastic job."""
    return bool(os.environ.get(_ID))


def is_newcomer() -> bool:
    """Whether horovodrun started this process for a job that runs already, and the process has not joined yet."""
    number = os.environ.get(_ID, "")
    return _member is None and number.isdigit() and int(number) >= int(os.environ.get("HOROVOD_SIZE", 0))


def incarnation() -> str:
    """Return the number of this process in the job. A process that is started in its place has another one."""
    return os.environ.get(_ID, "")


def view() -> View | None:
    """Return the view of the last generation that this process joined; None before the first."""
    return _member.view if _member else None


def report_commit(number: int) -> None:
    """Remember which commit this process holds; horovodrun learns of it when the process joins the next generation."""
    if _member is not None and _member.view is not None:
        _member.held = (_member.view.generation, number)


def committed() -> None:
    """Announce the first complete commit of a generation. Calls after that cost nothing."""
    member = _member
    if member is None or member.view is None or member.confirmed == member.view.generation:
        return
    member.confirmed = member.view.generation
    member.store.set(f"elastic/committed/{incarnation()}", str(member.view.generation))


def hosts_updated() -> int:
    """Return how often hosts changed in this generation: the same on all members only after they have agreed on it."""
    member = _member
    if member is None or member.view is None or member.update[0] != member.view.generation:
        return 0
    return member.update[1]


def update_kind() -> int:
    """Return what the changes were: NONE, REMOVED, ADDED or MIXED."""
    return _member.update[2] if _member is not None and hosts_updated() else NONE


def revoked(wait_s: float = 0.05) -> bool:
    """Whether the running generation has ended, because a member was lost or has left. Waits a moment for it."""
    deadline = time.monotonic() + wait_s
    while load().hvd_health(None) != abi.UNKNOWN:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.001)
    return True


def cause() -> str:
    """Return why the last generation ended: a sentence that names the rank that was lost. Empty: it did not fail."""
    if load().hvd_health(None) == abi.UNKNOWN:
        return last_error()
    return _member.cause if _member is not None else ""


def done() -> None:
    """Say that training is complete here: nobody takes the place of this process when it ends."""
    if _member is not None:
        _member.store.set(f"elastic/done/{incarnation()}", "")


def leave() -> None:
    """Keep why the generation ended, for `join`. Call it before the engine is shut down."""
    if _member is not None:
        _member.cause, _member.sets = cause(), ""


def keep_sets(text: str) -> None:
    """Have the next generation begin with these process sets if this process is its rank 0."""
    if _member is not None:
        _member.sets = text


def join(failure: str = "") -> None:
    """
    Wait for the next view, and put it into the environment, where `init` finds it.

    `failure` is why the last view could not be started. Raises SystemExit when the job needs this process no more, and
    HorovodInternalError when the job has failed.
    """
    global _member
    first = _member is None
    if _member is None:
        _member = _Member()
    member = _member
    member.request += 1
    lines = [f"request {member.request}", f"generation {member.view.generation if member.view else 0}"]
    lines.append(f"held {member.held[0]} {member.held[1]}")
    if member.sets:
        lines.append(f"sets {member.sets}")
    reason = " ".join((failure or member.cause).split())[:_LONGEST_CAUSE]
    if reason:
        lines.append(f"{'unstarted' if failure else 'cause'} {reason}")
    member.store.set(f"elastic/ready/{incarnation()}", "\n".join(lines))
    answer = None
    while answer is None:
        answer = member.store.get(f"elastic/view/{incarnation()}/{member.request}", _SLICE_S)
    member.cause = ""
    kind, _, text = answer.partition("\n")
    if kind == "leave":
        raise SystemExit(0)
    if kind != "view":
        raise HorovodInternalError(text)
    facts = dict(line.partition(" ")[::2] for line in text.splitlines())
    member.view = _decode(facts)
    # This process drops commits newer than the agreed one, also if it is lost before it says so.
    member.held = (member.held[0], min(member.held[1], member.view.commit))
    _export(member.view)
    if first:
        threading.Thread(
            target=_listen, args=(member, int(facts["news"])), name="hvd elastic news", daemon=True
        ).start()


def _decode(facts: dict[str, str]) -> View:
    rank, size, local_rank, local_size, cross_rank, cross_size = (int(number) for number in facts["ranks"].split())
    return View(
        generation=int(facts["generation"]),
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        cross_rank=cross_rank,
        cross_size=cross_size,
        members=tuple(facts["members"].split()),
        synced=tuple(int(number) for number in facts["synced"].split()),
        commit=int(facts["commit"]),
        reason=facts["reason"],
        sets=facts["sets"],
    )


def _export(what: View) -> None:
    for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "generation"):
        os.environ[f"HOROVOD_{name.upper()}"] = str(getattr(what, name))


def _listen(member: _Member, number: int) -> None:
    """Take the news of the job, one after the other, until the job ends."""
    try:
        store = _Store()
        while True:
            news = store.get(f"elastic/news/{number}", _NEWS_S)
            if news is None:
                continue
            generation, count, kind = (int(part) for part in news.split())
            member.update = (generation, count, kind)
            number += 1
    except Exception:
        return  # the store has ended, and with it the job


def _forget() -> None:
    # A forked child is no member.
    global _member
    _member = None


os.register_at_fork(after_in_child=_forget)
