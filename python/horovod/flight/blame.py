# SPDX-License-Identifier: Apache-2.0
"""
Who is at fault: compares how far each rank got.

A rank *waits for* the members that have not submitted what it has in flight. Following that leads to ranks that others
wait for and that wait for nobody: they are at fault, and their own dump, or its absence, says how. Where everybody
waits for somebody in a circle, the ranks submitted different things. Where nobody waits for anybody although something
is in flight, all have submitted it, and it is its description or its execution that differs.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from horovod.flight.dumps import Dump, Key, Op
from horovod.flight.job import Job, Probe, ranks_text

# Shorter than this, an operation in flight is work, not a stall.
STALL_S = 1.0

FAILED_PRECONDITION = 9

FAILED = "failed: "
LOST = ("died", "crashed", "was silent")
REVOKED = re.compile(r"revoked: rank (\d+) (.*)")
ELSEWHERE = "stall: in its own code"
# In names that the library makes by counting.
COUNTED = ".noname."
UNDECIDED = "equally many ranks wait for each operation, so the dumps cannot tell which ranks are wrong"
_OTHER_BRANCH = (
    "look for a condition around the call that depends on the rank or the data; most often the ranks have different "
    "numbers of batches: give all the same (steps_per_epoch, drop_remainder=True), or use hvd.join()"
)


@dataclass
class Verdict:
    """What is wrong, in one word and in plain ones."""

    cause: str
    ranks: list[int] = field(default_factory=list)  # at fault
    waiting: list[int] = field(default_factory=list)
    operation: str = ""
    waited_s: float = 0.0
    what: str = ""  # they did
    details: list[str] = field(default_factory=list)
    advice: str = ""


def diagnose(dumps: dict[int, Dump], size: int | None = None, probe: Probe | None = None) -> Verdict:
    """Name the ranks at fault and the cause."""
    job = Job(dumps, size, probe)
    if not dumps:
        return Verdict("no_dumps", what="there are no dumps")
    verdicts = (find(job) for find in (_crashed, _raised, _revoked, _stalled, _failed))
    return next((verdict for verdict in verdicts if verdict), None) or _nothing(job)


def _nothing(job: Job) -> Verdict:
    """Name the longest wait of an operation that is done: a stall that resolved leaves no other trace."""
    found = Verdict("nothing", what="no operation is stuck")
    agreed = [(op.waited(), rank, op) for rank, dump in job.dumps.items() for op in dump.ops if op.state == "done"]
    waited, rank, op = max(agreed, key=lambda one: one[0], default=(0.0, 0, None))
    if op is None or waited < STALL_S:
        return found
    text = f"longest wait among the recorded operations: {ranks_text([rank])} waited {waited:.1f} s for {op.label}"
    peers = {other: one.waited() for other, dump in job.dumps.items() for one in dump.ops if one.is_same(op)}
    last = min(peers, key=lambda other: peers[other])
    found.details.append(f"{text}, which {ranks_text([last])} submitted last" if last != rank else text)
    return found


def _crashed(job: Job) -> Verdict | None:
    crashed = [dump for dump in job.dumps.values() if dump.reason.startswith("crash")]
    if not crashed:
        return None
    first = min(crashed, key=lambda dump: dump.wall_ns)
    signal = first.reason.partition(": ")[2] or "a signal"
    verdict = Verdict("crashed", [first.rank], what=f"crashed with {signal}", details=[job.last_words(first.rank)])
    verdict.waiting = sorted(rank for rank, dump in job.dumps.items() if dump.pending() and rank != first.rank)
    verdict.advice = "look at its stderr and core file; PYTHONFAULTHANDLER=1 prints the Python stack"
    return verdict


def _raised(job: Job) -> Verdict | None:
    """Look for programs that ended with an exception. It has no say where a rank was lost, which may be its cause."""
    raised = [dump for dump in job.dumps.values() if dump.reason.startswith(FAILED)]
    lost = (REVOKED.fullmatch(dump.reason) for dump in job.dumps.values())
    if not raised or any(one and one[2] in LOST for one in lost):
        return None
    first = min(raised, key=lambda dump: dump.wall_ns)
    ranks = sorted(dump.rank for dump in raised if dump.reason == first.reason)
    verdict = Verdict("raised", ranks, what=f"failed with {first.reason[len(FAILED) :]}")
    verdict.details = [job.last_words(rank) for rank in ranks[:4]]
    verdict.waiting = sorted(rank for rank in job.dumps if rank not in ranks and job.dumps[rank].pending())
    verdict.advice = "look at its stderr for the traceback"
    return verdict


def _revoked(job: Job) -> Verdict | None:
    """Look whether survivors wrote down why they ended; all of them know the first cause."""
    causes = {
        "died": ("dead", "died", "look at its stderr; out of memory kills silently"),
        "crashed": ("crashed", "crashed", "look at its stderr and core file"),
        "was silent": ("silent", "did not respond: it was stopped, or stuck in the kernel", "look at its host"),
        "left": ("ended", "left while others had operations pending", "look at its stderr for an error"),
    }
    votes: Counter[tuple[int, str]] = Counter()
    for dump in job.dumps.values():
        found = REVOKED.fullmatch(dump.reason)
        if found and found[2] in causes:
            votes[int(found[1]), found[2]] += 1
    if not votes:
        return None
    rank, word = votes.most_common(1)[0][0]
    ops = job.dumps[rank].ops if rank in job.dumps else []
    # Who leaves after an operation failed does so because of that.
    if word == "left" and ops and ops[-1].state == "failed" and (verdict := _disagreed(job)):
        return verdict
    cause, what, advice = causes[word]
    details = [job.last_words(rank)] if rank in job.dumps else [f"{job.who(rank)}: no dump"]
    verdict = Verdict(cause, [rank], what=what, details=details, advice=advice)
    verdict.waiting = sorted(r for r, dump in job.dumps.items() if dump.pending() and r != rank)
    pending = [op for dump in job.dumps.values() for op in dump.pending()]
    if pending:
        verdict.operation = pending[0].label
    return verdict


def _stalled(job: Job) -> Verdict | None:
    # Ranks that dumped because of a short limit have not waited for longer than that.
    longest = max(map(job.waited, job.flights), default=0.0)
    told = any(dump.reason in ("stall", ELSEWHERE) for dump in job.dumps.values())
    limit = min(STALL_S, longest / 2) if told else STALL_S
    job.flights = {key: ops for key, ops in job.flights.items() if job.waited(key) >= limit}
    if not job.flights:
        return None
    waits: dict[int, set[int]] = {}
    for key, ops in job.flights.items():
        for rank in ops:
            # What it has in flight does not keep a program that is elsewhere.
            if job.dumps[rank].reason == ELSEWHERE:
                continue
            waits.setdefault(rank, set()).update(job.lacking(key) - {rank})
    awaited = set().union(*waits.values()) if waits else set()
    ends = sorted(rank for rank in awaited if not waits.get(rank))
    if ends:
        return _absent(job, ends)
    lacking = [key for key in job.flights if job.lacking(key)]
    if lacking:
        return _different(job, lacking)
    keys = sorted(job.flights, key=lambda key: (job.begun(key), key))
    found = [(key, _mismatched(job, job.flights[key]) or _slow(job, key)) for key in keys]
    # The oldest that tells who.
    key, verdict = next((one for one in found if one[1].ranks), found[0])
    return _about(job, verdict, key)


def _about(job: Job, verdict: Verdict, key: Key) -> Verdict:
    ops = job.flights[key]
    verdict.operation = ops[min(ops)].label
    verdict.waited_s = job.waited(key)
    verdict.waiting = verdict.waiting or sorted(set(ops) - set(verdict.ranks))
    return verdict


def _absent(job: Job, ends: list[int]) -> Verdict:
    """Others wait for these ranks, which wait for nobody."""
    by_cause: dict[str, list[tuple[int, Verdict, Key]]] = {}
    for rank in ends:
        key = job.oldest(key for key in job.flights if rank in job.lacking(key))
        verdict = _gone(job, rank) if job.silent(rank, key) else _elsewhere(job, rank, key)
        by_cause.setdefault(verdict.cause, []).append((rank, verdict, key))
    # Of several causes the one that explains the others: who is dead or stopped can do nothing else.
    order = ["dead", "stopped", "no_dump", "truncated", "ended", "never_submitted", "busy"]
    cause = min(by_cause, key=order.index)
    found = by_cause[cause]
    rank, verdict, key = found[0]
    verdict.ranks = [rank for rank, _, _ in found]
    verdict.details = [line for _, one, _ in found[:4] for line in one.details]
    return _about(job, verdict, key)


def _gone(job: Job, rank: int) -> Verdict:
    host, pid = job.peers.get(rank, ("", 0))
    state = job.probe(host, pid) if job.probe and pid else None
    old = " since the others began to wait" if rank in job.dumps else ""
    details = [job.last_words(rank)] if rank in job.dumps else [f"{job.who(rank)}: no dump"]
    if state == "dead":
        return Verdict(
            "dead", what="is dead", details=details, advice="look at its stderr; out of memory kills silently"
        )
    if state == "stopped":
        return Verdict(
            "stopped", what="is stopped (SIGSTOP or a debugger)", details=details, advice=f"kill -CONT {pid}"
        )
    return Verdict(
        "no_dump",
        what=f"left no dump{old}: it is dead or stopped, or does not run this version",
        details=details,
        advice="look whether the process lives (ps -o pid,stat,wchan) and at its stderr",
    )


def _elsewhere(job: Job, rank: int, key: Key) -> Verdict:
    dump = job.dumps[rank]
    details = [job.last_words(rank)]
    if dump.reason.startswith(("shutdown", "exit")):
        return _left(details)
    if not dump.whole:
        return Verdict(
            "truncated",
            what="may not have submitted it: its dump is truncated, so what it did last is not known",
            details=details,
            advice="look whether the disk is full, and have it dump again: kill -USR2 PID",
        )
    removes = [op for op in dump.pending() if op.op == "REMOVE_PROCESS_SET"]
    if removes and key[0] != 0:
        advice = "submit an operation on all ranks of its set, or on none, before the set is removed"
        what = "never submitted it, and is in remove_process_set"
        return Verdict("never_submitted", what=what, details=details, advice=advice)
    if dump.pending() and dump.reason != ELSEWHERE:
        what = f"is busy with {dump.pending()[0].label}"
        return Verdict("busy", what=what, details=details, advice="look at its processor load and stack")
    if any(_repeated(op.key) == _repeated(key) for op in dump.ops):
        what = "has submitted this operation before, but not again: it is busy in its own code"
        return Verdict("busy", what=what, details=details, advice="look at its stack: py-spy dump --pid PID")
    advice = _OTHER_BRANCH
    return Verdict("never_submitted", what="never submitted it", details=details, advice=advice)


def _left(details: list[str]) -> Verdict:
    return Verdict(
        "ended",
        what="left in good order (hvd.shutdown() or the end of its program) while others still waited for it",
        details=details,
        advice="give all ranks the same number of steps, or use hvd.join()",
    )


def _repeated(key: Key) -> Key:
    """Make one of all names that the library makes by counting: they come once each."""
    begin, counted, _ = key[1].partition(COUNTED)
    return (key[0], begin + counted)


def _different(job: Job, keys: list[Key]) -> Verdict:
    """Everybody waits in something that somebody else has not submitted."""
    stands: dict[Key, list[int]] = {}
    for rank in sorted({rank for key in keys for rank in job.flights[key]}):
        mine = [key for key in keys if rank in job.flights[key]]
        # Submission order, oldest first: the one it cannot get past.
        first = min(mine, key=lambda key: job.flights[key][rank].n)
        stands.setdefault(first, []).append(rank)

    # Of names that as many stand at, one that was used before is more likely to be right.
    def weight(key: Key) -> tuple:
        return len(stands[key]), job.past(key) is not None

    most = max(stands, key=lambda key: (weight(key), -stands[key][0]))
    undecided = [key for key in stands if key != most and weight(key) == weight(most)]
    others = {key: ranks for key, ranks in stands.items() if key != most}
    if not others:
        key = job.oldest(keys)
        return _about(job, Verdict("no_agreement", sorted(job.lacking(key)), what="did not submit it"), key)
    wanted = job.flights[most][stands[most][0]]
    key = min(others, key=lambda key: others[key])
    rank = others[key][0]
    got = job.flights[key][rank]
    ranks = sorted(rank for group in others.values() for rank in group)
    details = [f"{ranks_text(stands[key])}: {job.flights[key][stands[key][0]].label}" for key in (most, *others)]
    seen = {(op.key) for op in job.dumps[rank].ops if not op.pending}
    if most in seen and any(op.key == key for op in job.dumps[stands[most][0]].ops if not op.pending):
        verdict = Verdict(
            "other_order", ranks, what=f'waits in "{got.name}" first: the ranks submit in different orders'
        )
        verdict.advice = "submit without waiting (the _async functions), or in the same order everywhere"
    elif got.wants() == wanted.wants():
        verdict = Verdict(
            "other_name", ranks, what=f'submitted "{got.name}" where the others submitted "{wanted.name}"'
        )
        verdict.advice = "give names that do not depend on the rank, or on how often something was called"
    else:
        verdict = Verdict("other_operation", ranks, what=f"submitted {got.label} instead")
        verdict.advice = _OTHER_BRANCH
    verdict.details = details
    verdict.waiting = stands[most]
    if undecided:
        verdict.ranks = sorted(ranks + stands[most])
        verdict.what += f" ({UNDECIDED})"
    return _about(job, verdict, most)


def _mismatched(job: Job, ops: dict[int, Op]) -> Verdict | None:
    """Look for ranks that describe the operation otherwise than most."""
    for aspect in next(iter(ops.values())).wants():
        values = {rank: op.wants()[aspect] for rank, op in ops.items()}
        if len(set(values.values())) == 1:
            continue
        counts = Counter(values.values())
        lowest = values[min(values)]
        past = job.past(next(iter(ops.values())).key)
        before = past.wants()[aspect] if past else None

        def weight(value: object, counts: Counter = counts, before: object = before) -> tuple:
            return counts[value], value == before

        usual = max(counts, key=lambda value: (weight(value), value == lowest))
        undecided = [value for value in counts if value != usual and weight(value) == weight(usual)]
        odd = sorted(rank for rank, value in values.items() if value != usual)

        def show(value: object) -> str:
            return str(list(value)) if isinstance(value, tuple) else str(value)

        what = f"submitted {aspect} {show(values[odd[0]])}, the others {show(usual)}"
        cause = f"other_{aspect.split()[0]}"
        if undecided:
            shown = "; ".join(f"rank {rank}: {show(value)}" for rank, value in sorted(values.items())[:8])
            return Verdict(cause, sorted(values), what=f"submitted different {aspect}s, {shown} ({UNDECIDED})")
        return Verdict(cause, odd, sorted(set(values) - set(odd)), what=what)
    return None


def _slow(job: Job, key: Key) -> Verdict:
    """All have submitted the same; it is not being done."""
    ops = job.flights[key]
    behind = sorted(rank for rank, op in ops.items() if op.state == "submitted")
    if behind and len(behind) < len(ops):
        running = [op for op in job.dumps[behind[0]].pending() if op.state == "running" and op.key != key]
        what = f"is busy with {running[0].label}" if running else "has it, but its engine did not tell the others"
        details = [job.last_words(rank) for rank in behind[:4]]
        return Verdict("busy_engine", behind, what=what, details=details, advice="look at its processor load and stack")
    if any(op.agreed for op in ops.values()):
        states = {rank: op.state for rank, op in ops.items()}
        missing = Counter(rank for op in ops.values() for rank in op.missing)
        late = sorted(rank for rank, state in states.items() if state != "running") or [
            r for r, _ in missing.most_common(1)
        ]
        what = "does not move its data" if late else "all ranks run it and the data does not move"
        details = [f"{rank}: {state}" for rank, state in sorted(states.items())][:8]
        advice = "look at the network between the hosts, and at the processor load of this rank"
        return Verdict("no_progress", late, what=what, details=[f"state by rank: {', '.join(details)}"], advice=advice)
    sequencer = min(job.members(key[0]), default=min(ops))
    what = "has all requests of this operation and did not answer them"
    return Verdict("no_agreement", [sequencer], what=what, advice="look at its processor load and stack")


def _failures(job: Job) -> dict[Key, dict[int, Op]]:
    """Return the last failure of each name, by rank."""
    last: dict[Key, dict[int, Op]] = {}
    for rank, dump in job.dumps.items():
        for op in dump.ops:
            if op.state == "failed":
                last.setdefault(op.key, {})[rank] = op
    return last


def _disagreed(job: Job) -> Verdict | None:
    """Look for an operation that failed because the ranks described it differently."""
    for ops in _failures(job).values():
        disagreed = {rank: op for rank, op in ops.items() if op.code == FAILED_PRECONDITION}
        verdict = _mismatched(job, disagreed) if len(disagreed) > 1 else None
        if verdict:
            verdict.operation = disagreed[min(disagreed)].label
            return verdict
    return None


def _failed(job: Job) -> Verdict | None:
    """Nothing is in flight; the last failures tell."""
    if verdict := _disagreed(job):
        return verdict
    last = _failures(job)
    votes = Counter(op.at_fault for ops in last.values() for op in ops.values() if op.at_fault >= 0)
    if not votes:
        return None
    rank = votes.most_common(1)[0][0]
    witnesses = sorted({r for ops in last.values() for r, op in ops.items() if op.at_fault == rank})
    if rank in job.dumps and job.dumps[rank].reason.startswith(("shutdown", "exit")):
        verdict = _left([job.last_words(rank)])
        verdict.ranks = [rank]
    elif rank in job.dumps:
        verdict = Verdict("lost", [rank], what="was lost to the others", details=[job.last_words(rank)])
    else:
        verdict = _gone(job, rank)
        verdict.ranks = [rank]
    verdict.waiting = [witness for witness in witnesses if witness != rank]
    return verdict
