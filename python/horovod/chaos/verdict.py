# SPDX-License-Identifier: Apache-2.0
"""What was wrong with a round. Nothing, one hopes."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

from horovod.chaos.plan import DEADLY, ENDS, HARMLESS, INIT, OPEN, SHUTDOWN, Fault, Round
from horovod.chaos.worker import named_rank

WRONG, HANG, LEAK, BLAME, OTHER = "wrong result", "hang", "leak", "wrong blame", "unexpected"


@dataclass
class Member:
    """What is known about one rank of a round."""

    rank: int
    worker: int
    up: bool = False
    down: dict | None = None  # what it said at its end
    status: int | None = None  # of a process that ended, as by os.waitstatus_to_exitcode
    ports: list[int] = field(default_factory=list)
    hung: bool = False
    late: list[str] = field(default_factory=list)


@dataclass
class Injection:
    """A fault that happened."""

    fault: Fault
    at: float
    ports: list[int] = field(default_factory=list)  # sockets: the other ends


@dataclass
class Outcome:
    """A round, when it is over."""

    plan: Round
    members: list[Member]
    injections: list[Injection]
    impossible: list[tuple[Fault, str]]


@dataclass(frozen=True)
class Problem:
    """Something that must not be."""

    kind: str
    text: str


@dataclass
class Blame:
    """A survivor that ended with an error: whom it named, and how long after the fault."""

    kind: str  # of the fault
    right: bool
    seconds: float


def judge(outcome: Outcome) -> tuple[list[Problem], list[Blame]]:
    """Compare what happened with what may happen."""
    problems: list[Problem] = []
    blames: list[Blame] = []
    if any(one.fault.kind == "tensors" for one in outcome.injections):
        # Wrong data is all that is promised then; that every rank ends is promised.
        return [Problem(HANG, f"rank {one.rank} did not end") for one in outcome.members if one.hung], []
    ending = [one for one in outcome.injections if one.fault.effect in (DEADLY, ENDS)]
    for member in outcome.members:
        _judge_anybody(member, problems)
        own = [one.fault for one in outcome.injections if one.fault.rank == member.rank]
        if member.down is None:
            _judge_dead(member, own, ending, problems)
        elif not own or all(fault.effect == HARMLESS for fault in own):
            _judge_survivor(outcome, member, ending, problems, blames)
        else:
            _judge_victim(member, own, problems)
    return problems, blames


def _judge_anybody(member: Member, problems: list[Problem]) -> None:
    who = f"rank {member.rank} (worker {member.worker})"
    if member.hung:
        problems.append(Problem(HANG, f"{who} did not end"))
    for text in member.late:
        problems.append(Problem(WRONG, f"{who}: {text}"))
    down = member.down
    if down is None:
        return
    if down["outcome"] == "wrong":
        problems.append(Problem(WRONG, f"{who}: {down['error']}"))
    for leak in down.get("leaks", ()):
        problems.append(Problem(LEAK, f"{who}: {leak}"))
    if "shutdown_error" in down:
        problems.append(Problem(OTHER, f"{who}: shutdown raised {down['shutdown_error']}"))


def _judge_dead(member: Member, own: list[Fault], ending: list[Injection], problems: list[Problem]) -> None:
    """One that never said how the round went for it."""
    if member.hung:
        return
    if any(fault.effect == DEADLY or fault.phase == SHUTDOWN for fault in own):
        return
    # Peers kill one that is silent, so that it can write to their memory no more.
    fenced = member.status == -signal.SIGKILL and any(one.fault.kind in ("freeze", "stop") for one in ending)
    if not fenced or all(fault.kind not in ("freeze", "stop") for fault in own):
        problems.append(Problem(OTHER, f"rank {member.rank} ended with status {member.status}, and nobody told it to"))


def _judge_survivor(
    outcome: Outcome, member: Member, ending: list[Injection], problems: list[Problem], blames: list[Blame]
) -> None:
    down = member.down
    assert down
    who = f"rank {member.rank}"
    may_end = [*ending, *(one for one in outcome.injections if one.fault.effect == OPEN)]
    if down["outcome"] == "done":
        if ending:
            problems.append(Problem(OTHER, f"{who} ended without an error in spite of {ending[0].fault.describe()}"))
        return
    if down["outcome"] != "error":
        return
    if "HorovodInternalError" not in down["type"]:
        problems.append(Problem(OTHER, f"{who} raised {down['type'][0]}: {down['error']}"))
        return
    if not may_end:
        problems.append(Problem(OTHER, f"{who} got an error without a cause: {down['error']}"))
        return
    named = named_rank(down["error"])
    cause = next((one for one in may_end if one.fault.rank == named), None)
    if cause is None:
        cause = next((one for one in may_end if named in _other_ends(one, outcome, member.rank)), None)
    if cause is None and _gave_up_in_init(outcome, named):
        cause = may_end[0]
    if cause is None:
        problems.append(Problem(BLAME, f"{who} blames rank {named}: {down['error']}"))
    first = cause or may_end[0]
    blames.append(Blame(first.fault.kind, cause is not None, max(down["at"] - first.at, 0.0)))


def _gave_up_in_init(outcome: Outcome, rank: int | None) -> bool:
    """Whether a rank had an error in init: then it was not there for those who came later, or were through already."""
    down = outcome.members[rank].down if rank is not None and rank < len(outcome.members) else None
    return down is not None and (down["outcome"], down["where"]) == ("error", INIT)


def _other_ends(injection: Injection, outcome: Outcome, rank: int) -> set[int]:
    members = outcome.members
    if injection.fault.kind == "cut":
        return {one.rank for one in members if one.rank * 2 // len(members) != rank * 2 // len(members)}
    # Nobody can tell which side of a connection failed, and either may be the first to tell the rest.
    owners = {port: member.rank for member in members for port in member.ports}
    if any(port not in owners for port in injection.ports):
        return {member.rank for member in members}  # cut before the other side could say which ports it has
    return {owners[port] for port in injection.ports}


def _judge_victim(member: Member, own: list[Fault], problems: list[Problem]) -> None:
    """One that was hurt and lived to tell."""
    down = member.down
    assert down
    if down["outcome"] == "error":
        allowed = {"HorovodInternalError"}
        if any(fault.kind in ("shm", "descriptors") for fault in own):
            allowed.add("MemoryError")
        if not allowed & set(down["type"]):
            problems.append(Problem(OTHER, f"rank {member.rank} raised {down['type'][0]}: {down['error']}"))
    elif down["outcome"] == "done" and any(fault.effect == ENDS for fault in own):
        problems.append(Problem(OTHER, f"rank {member.rank} ended without an error in spite of {own[0].describe()}"))
