# SPDX-License-Identifier: Apache-2.0
"""
Who is at fault: compares how far each rank got.

A rank *waits for* the members that have not submitted what it has in flight. Following that leads to ranks that others
wait for and that wait for nobody: they are at fault, and their own dump, or its absence, says how. Where everybody
waits for somebody in a circle, the ranks submitted different things. Where nobody waits for anybody although something
is in flight, all have submitted it, and it is its description or its execution that differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from horovod.flight.dumps import Dump, Key, Op

# Shorter than this, an operation in flight is work, not a stall.
STALL_S = 1.0
# Wall clocks of two hosts may differ by this much.
CLOCK_SKEW_NS = 30 * 10**9

FAILED_PRECONDITION = 9

# (host, pid) -> "dead", "stopped", "alive", or None where that cannot be known from here.
Probe = Callable[[str, int], "str | None"]


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


def ranks_text(ranks: Iterable[int]) -> str:
    """
    Write a list of ranks shortly.

    >>> ranks_text([3]), ranks_text([0, 1, 2, 5]), ranks_text([0, 1])
    ('rank 3', 'ranks 0-2, 5', 'ranks 0, 1')
    """
    ranks = sorted(ranks)
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(parts)}"


class Job:
    """All dumps of a job, and what follows from them."""

    def __init__(self, dumps: dict[int, Dump], size: int | None = None, probe: Probe | None = None):
        self.dumps = dumps
        self.size = size or max((dump.size for dump in dumps.values()), default=0)
        self.probe = probe
        self.sets: dict[int, list[int]] = {}
        self.peers: dict[int, tuple[str, int]] = {}
        for dump in dumps.values():
            self.sets.update(dump.sets)
            self.peers.update(dump.peers)
            self.peers[dump.rank] = (dump.host, dump.pid)
        self.flights: dict[Key, dict[int, Op]] = {}  # what is in flight, by rank
        for rank, dump in dumps.items():
            for op in dump.pending():
                self.flights.setdefault(op.key, {})[rank] = op

    def members(self, process_set: int) -> list[int]:
        """Ranks of a process set, as far as the dumps know."""
        if process_set == 0:
            return list(range(self.size))
        known = {rank for key, ops in self.flights.items() if key[0] == process_set for rank in ops}
        return self.sets.get(process_set) or sorted(known)

    def silent(self, rank: int, key: Key) -> bool:
        """Whether the rank has said nothing since the operation began."""
        if rank not in self.dumps:
            return True
        mine = self.dumps[rank]
        others = [
            self.dumps[r].wall(op.ns.get("submitted", 0)) + (0 if self.dumps[r].boot == mine.boot else CLOCK_SKEW_NS)
            for r, op in self.flights[key].items()
            if r != rank
        ]
        return bool(others) and min(others) > mine.wall_ns

    def lacking(self, key: Key) -> set[int]:
        """Members that have not submitted the operation."""
        ops = self.flights[key]
        if any(op.agreed for op in ops.values()):
            return set()
        return set(self.members(key[0])) - set(ops)

    def begun(self, key: Key) -> int:
        """When the first rank submitted the operation."""
        return min(self.dumps[rank].wall(op.ns.get("submitted", 0)) for rank, op in self.flights[key].items())

    def oldest(self, keys: Iterable[Key]) -> Key:
        """Return the operation that waits longest."""
        return min(keys, key=lambda key: (self.begun(key), key))

    def waited(self, key: Key) -> float:
        """Seconds that somebody has waited for the operation."""
        return max(self.dumps[rank].age(op) for rank, op in self.flights[key].items())

    def who(self, rank: int) -> str:
        """Name a rank with its host and process."""
        if rank not in self.peers:
            return f"rank {rank}"
        host, pid = self.peers[rank]
        return f"rank {rank} (host {host}, pid {pid})"

    def last_words(self, rank: int) -> str:
        """Say what the rank did last, from its dump."""
        dump = self.dumps[rank]
        if not dump.ops:
            return f"{self.who(rank)} has submitted nothing at all"
        op = dump.ops[-1]
        ago = dump.seconds_before(op.ns.get(op.state, dump.monotonic_ns))
        return f"{self.who(rank)}: last operation {op.label}, {op.state} {ago:.1f} s before its dump"


def diagnose(dumps: dict[int, Dump], size: int | None = None, probe: Probe | None = None) -> Verdict:
    """Name the ranks at fault and the cause."""
    job = Job(dumps, size, probe)
    if not dumps:
        return Verdict("no_dumps", what="there are no dumps")
    return _crashed(job) or _stalled(job) or _failed(job) or Verdict("nothing", what="no operation is stuck")


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


def _stalled(job: Job) -> Verdict | None:
    job.flights = {key: ops for key, ops in job.flights.items() if job.waited(key) >= STALL_S}
    if not job.flights:
        return None
    waits: dict[int, set[int]] = {}
    for key, ops in job.flights.items():
        for rank in ops:
            waits.setdefault(rank, set()).update(job.lacking(key) - {rank})
    awaited = set().union(*waits.values())
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
    order = ["dead", "stopped", "no_dump", "ended", "never_submitted", "busy"]
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
        advice = "give all ranks the same number of steps, or use hvd.join()"
        return Verdict("ended", what="ended before the others", details=details, advice=advice)
    if dump.pending():
        what = f"is busy with {dump.pending()[0].label}"
        return Verdict("busy", what=what, details=details, advice="look at its processor load and stack")
    if any(op.key == key for op in dump.ops):
        what = "has submitted this operation before, but not again: it is busy in its own code"
        return Verdict("busy", what=what, details=details, advice="look at its stack: py-spy dump --pid PID")
    advice = "look for a condition around the call that depends on the rank or the data"
    return Verdict("never_submitted", what="never submitted it", details=details, advice=advice)


def _different(job: Job, keys: list[Key]) -> Verdict:
    """Everybody waits in something that somebody else has not submitted."""
    stands: dict[Key, list[int]] = {}
    for rank in sorted({rank for key in keys for rank in job.flights[key]}):
        mine = [key for key in keys if rank in job.flights[key]]
        # Submission order, oldest first: the one it cannot get past.
        first = min(mine, key=lambda key: job.flights[key][rank].n)
        stands.setdefault(first, []).append(rank)
    most = max(stands, key=lambda key: (len(stands[key]), -stands[key][0]))
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
        verdict.advice = "look for a condition around the call that depends on the rank or the data"
    verdict.details = details
    verdict.waiting = stands[most]
    return _about(job, verdict, most)


def _mismatched(job: Job, ops: dict[int, Op]) -> Verdict | None:
    """Look for ranks that describe the operation otherwise than most."""
    for aspect in next(iter(ops.values())).wants():
        values = {rank: op.wants()[aspect] for rank, op in ops.items()}
        if len(set(values.values())) == 1:
            continue
        counts = Counter(values.values())
        lowest = values[min(values)]
        usual = max(counts, key=lambda value: (counts[value], value == lowest))
        odd = sorted(rank for rank, value in values.items() if value != usual)

        def show(value: object) -> str:
            return str(list(value)) if isinstance(value, tuple) else str(value)

        what = f"submitted {aspect} {show(values[odd[0]])}, the others {show(usual)}"
        if counts[usual] * 2 == len(values):
            what += " (as many as those: which is right, the dumps do not say)"
        cause = f"other_{aspect.split()[0]}"
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


def _failed(job: Job) -> Verdict | None:
    """Nothing is in flight; the last failures tell."""
    last: dict[Key, dict[int, Op]] = {}
    for rank, dump in job.dumps.items():
        for op in dump.ops:
            if op.state == "failed":
                last.setdefault(op.key, {})[rank] = op
    for ops in last.values():
        disagreed = {rank: op for rank, op in ops.items() if op.code == FAILED_PRECONDITION}
        verdict = _mismatched(job, disagreed) if len(disagreed) > 1 else None
        if verdict:
            verdict.operation = disagreed[min(disagreed)].label
            return verdict
    votes = Counter(op.at_fault for ops in last.values() for op in ops.values() if op.at_fault >= 0)
    if not votes:
        return None
    rank = votes.most_common(1)[0][0]
    witnesses = sorted({r for ops in last.values() for r, op in ops.items() if op.at_fault == rank})
    if rank in job.dumps:
        verdict = Verdict("lost", [rank], what="was lost to the others", details=[job.last_words(rank)])
    else:
        verdict = _gone(job, rank)
        verdict.ranks = [rank]
    verdict.waiting = [witness for witness in witnesses if witness != rank]
    return verdict
