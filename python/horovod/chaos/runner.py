# SPDX-License-Identifier: Apache-2.0
"""Runs one job after the other: starts workers, sends them from round to round, and hurts them from outside."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import pathlib
import random
import secrets
import select
import shutil
import signal
import socket
import time
from dataclasses import dataclass, field

from horovod.chaos import system
from horovod.chaos.operations import Oracle
from horovod.chaos.plan import DEADLY, DRIVER, ENDS, HARMLESS, INIT, SHUTDOWN, Fault, Options, Round, plan_job
from horovod.chaos.verdict import HANG, LEAK, Injection, Member, Outcome, judge
from horovod.chaos.worker import STOP_AT, start

# What a machine that is busy with other things may take on top of every limit. It only has to catch hangs.
GRACE_S = 20.0
_LOG_LINES = 30


@dataclass
class JobResult:
    """What came out of a job, as plain values."""

    job: int
    rounds: int = 0
    ranks: int = 0
    checked: int = 0
    seconds: float = 0.0
    injected: list[str] = field(default_factory=list)  # kinds
    impossible: list[tuple[str, str]] = field(default_factory=list)  # kind, why
    blames: list[tuple[str, bool, float]] = field(default_factory=list)  # kind, right, seconds
    problems: list[tuple[str, str, list[str]]] = field(default_factory=list)  # kind, text, kinds of faults in the round
    logs: str = ""


class _Process:
    """A worker as its runner sees it."""

    def __init__(self, number: int, shared: memoryview, folder: pathlib.Path, oracle: Oracle) -> None:
        self.number = number
        self.log = folder / f"worker{number}.log"
        self.pid, self.commands, self.events = start(number, shared, str(self.log), oracle)
        os.set_blocking(self.events, False)
        self.pidfd = os.pidfd_open(self.pid)
        self.status: int | None = None
        self._rest = b""

    def send(self, spec: dict) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self.commands, json.dumps(spec).encode() + b"\n")

    def read(self) -> list[dict]:
        """Return what it told since the last time."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.events, 65536):
                self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines]

    def signal(self, number: int) -> bool:
        """Send a signal, if it is still there."""
        if self.status is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)
            return True
        return False

    def reap(self, block: bool = False) -> bool:
        """Note its end, if that has come."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, 0 if block else os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def close(self) -> None:
        """Forget it; it must have ended."""
        for descriptor in (self.commands, self.events, self.pidfd):
            os.close(descriptor)


class Job:
    """One job."""

    def __init__(self, options: Options, number: int, folder: pathlib.Path, oracle: Oracle) -> None:
        self.options = options
        self.result = JobResult(number)
        self.folder = folder
        self.oracle = oracle
        self.memory = mmap.mmap(-1, 4096)
        self.shared = memoryview(self.memory).cast("q")
        self.shared[STOP_AT] = -1  # no round may end yet
        self.alive: list[_Process] = []
        self.started = 0
        self.port = free_port()

    def run(self) -> JobResult:
        """Run all rounds."""
        begin = time.monotonic()
        self.folder.mkdir()
        token = self.folder / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        shared_before = system.shared_files()
        for plan in plan_job(self.options, self.result.job):
            self._round(plan)
            if any(kind == HANG for kind, *_ in self.result.problems):
                break
        self._end()
        if left := set(system.shared_files()) - set(shared_before):
            self._problem(LEAK, f"/dev/shm has {sorted(left)}", [])
        if left := self._strange_files():
            self._problem(LEAK, f"the job's folder has {left}", [])
        if orphans := system.children():
            self._problem(LEAK, f"processes {orphans} are left", [])
        if self.result.problems:
            self.result.logs = self._logs()
        self.result.seconds = time.monotonic() - begin
        return self.result

    def _round(self, plan: Round) -> None:
        rng = random.Random(f"{plan.seed} ranks")
        while len(self.alive) > plan.size:
            self._dismiss(self.alive.pop(rng.randrange(len(self.alive))))
        while len(self.alive) < plan.size:
            self.alive.append(_Process(self.started, self.shared, self.folder, self.oracle))
            self.started += 1
        processes = rng.sample(self.alive, plan.size)
        environment = self._environment(plan)
        for rank, process in enumerate(processes):
            env = dict(environment, HOROVOD_RANK=str(rank))
            if plan.transport == "hosts":
                env["HOROVOD_HOSTNAME"] = f"host{rank * 2 // plan.size}"
            own = [fault for fault in plan.to_json()["faults"] if fault["rank"] == rank]
            process.send({**plan.to_json(), "rank": rank, "env": env, "faults": own})
        outcome = _Watch(plan, processes, self.shared).until_over()
        self.alive = [process for process in processes if process.status is None]
        for process in set(processes) - set(self.alive):
            process.close()
        # What shared memory a process has is decided once.
        for process in [processes[one.fault.rank] for one in outcome.injections if one.fault.kind == "shm"]:
            if process in self.alive:
                self.alive.remove(process)
                self._dismiss(process)
        self._note(outcome)

    def _note(self, outcome: Outcome) -> None:
        problems, blames = judge(outcome)
        kinds = [injection.fault.kind for injection in outcome.injections]
        self.result.rounds += 1
        self.result.ranks += outcome.plan.size
        self.result.checked += sum(member.down.get("checked", 0) for member in outcome.members if member.down)
        self.result.injected += kinds
        self.result.impossible += [(f"{fault.kind} ({fault.detail})", why) for fault, why in outcome.impossible]
        self.result.blames += [(blame.kind, blame.right, blame.seconds) for blame in blames]
        faults = "; ".join(injection.fault.describe() for injection in outcome.injections) or "no fault"
        where = f"round {outcome.plan.number}, {outcome.plan.size} ranks, {outcome.plan.transport}, {faults}"
        for problem in problems:
            self._problem(problem.kind, f"{problem.text} [{where}]", kinds)

    def _problem(self, kind: str, text: str, kinds: list[str]) -> None:
        self.result.problems.append((kind, text, kinds))

    def _environment(self, plan: Round) -> dict[str, str]:
        if plan.rendezvous == "port":
            self.port = free_port()
        address = f"127.0.0.1:{self.port}"
        if plan.rendezvous == "folder":
            address = f"file://{self.folder}/meeting"
        return {
            "TMPDIR": str(self.folder),
            "HOROVOD_SIZE": str(plan.size),
            "HOROVOD_RENDEZVOUS_ADDR": address,
            "HOROVOD_GENERATION": str(plan.number),
            "HOROVOD_TOKEN_FILE": str(self.folder / "token"),
            "HOROVOD_ENCRYPT": str(int(plan.encrypt)),
            "HOROVOD_DISABLE_SHM": str(int(plan.transport == "tcp")),
            "HOROVOD_HEARTBEAT_TIMEOUT_SECONDS": str(plan.heartbeat_s),
            "HOROVOD_START_TIMEOUT": str(plan.start_timeout_s),
            "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
            "HOROVOD_LOG_LEVEL": os.environ.get("HOROVOD_LOG_LEVEL", "warning"),
        }

    def _dismiss(self, process: _Process) -> None:
        """Let a worker go that is in no round."""
        os.close(process.commands)
        process.commands = os.dup(process.events)  # closed with the rest
        if not select.select([process.pidfd], [], [], GRACE_S)[0]:
            process.signal(signal.SIGKILL)
            self._problem(HANG, f"worker {process.number} did not end although there was nothing left to do", [])
        process.reap(block=True)
        for event in process.read():
            if event["event"] == "late":
                self._problem("wrong result", event["wrong"], [])
        if process.status != 0 and not any(kind == HANG for kind, *_ in self.result.problems):
            self._problem("unexpected", f"worker {process.number} ended with status {process.status}", [])
        process.close()

    def _end(self) -> None:
        while self.alive:
            self._dismiss(self.alive.pop())

    def _strange_files(self) -> list[str]:
        known = {"token", *(f"worker{i}.log" for i in range(self.started))}
        found = {path.name for path in self.folder.iterdir()} - known
        meeting = self.folder / "meeting"
        if meeting.is_dir() and not any(meeting.iterdir()):
            found.discard("meeting")
        # What ranks that were killed wrote there stays: there is nobody left to remove it.
        if self.result.injected:
            found.discard("meeting")
        return sorted(found)

    def _logs(self) -> str:
        parts = []
        for number in range(self.started):
            lines = (self.folder / f"worker{number}.log").read_text(errors="replace").splitlines()
            if lines:
                parts += [f"--- worker {number}", *lines[-_LOG_LINES:]]
        return "\n".join(parts)


class _Watch:
    """One round from outside: hears what its workers tell, sends signals at their times, and sees when it is over."""

    def __init__(self, plan: Round, processes: list[_Process], shared: memoryview) -> None:
        self.plan = plan
        self.processes = processes
        self.shared = shared
        self.members = [Member(rank, process.number) for rank, process in enumerate(processes)]
        self.outcome = Outcome(plan, self.members, [], [])
        self.begin = time.monotonic()
        self.waiting: list[Fault] = [fault for fault in plan.faults if fault.source == DRIVER]
        self.continue_at: dict[int, float] = {}  # rank: when it gets SIGCONT
        self.frozen: set[int] = set()
        self.poll = select.poll()
        for process in processes:
            self.poll.register(process.events, select.POLLIN)
            self.poll.register(process.pidfd, select.POLLIN)

    def until_over(self) -> Outcome:
        """Return when no rank takes part any more."""
        deadline = self._deadline()
        while not all(self._over(member) for member in self.members):
            self._send_signals()
            if self._may_stop():
                self.shared[STOP_AT] = max(self.shared[STOP_AT], self.plan.number)
            self._hear(self._patience(deadline))
            deadline = self._deadline()
            if time.monotonic() > deadline:
                self._give_up()
                break
        return self.outcome

    def _over(self, member: Member) -> bool:
        process = self.processes[member.rank]
        if member.rank in self.continue_at or (member.rank in self.frozen and process.status is None):
            return False
        return (member.down is not None and member.down["outcome"] != "left") or process.status is not None

    def _hear(self, seconds: float) -> None:
        self.poll.poll(max(seconds, 0) * 1000)
        for member, process in zip(self.members, self.processes):
            if process.status is not None:
                continue
            # In this order: what it told before it ended is there when its end is seen.
            ended = process.reap()
            for event in process.read():
                self._take(member, event)
            if ended:
                member.status = process.status
                self.poll.unregister(process.events)
                self.poll.unregister(process.pidfd)

    def _take(self, member: Member, event: dict) -> None:
        name = event["event"]
        if name == "up":
            member.up, member.ports = True, event["ports"]
        elif name == "down":
            member.down = event
        elif name == "late":
            member.late.append(event["wrong"])
        elif name == "inject":
            fault = next(one for one in self.plan.faults if one.number == event["fault"])
            if "impossible" in event:
                self.outcome.impossible.append((fault, event["impossible"]))
            else:
                self._injected(Injection(fault, event["t"], event.get("ports", [])))

    def _injected(self, injection: Injection) -> None:
        fault = injection.fault
        self.outcome.injections.append(injection)
        if fault.kind == "stop":
            until = injection.at + fault.seconds
            self.continue_at[fault.rank] = max(until, self.continue_at.get(fault.rank, 0.0))
        elif fault.kind == "freeze":
            self.frozen.add(fault.rank)

    def _send_signals(self) -> None:
        now = time.monotonic()
        for fault in list(self.waiting):
            due = self._due(fault)
            if due is None or due > now:
                continue
            self.waiting.remove(fault)
            number = signal.SIGSTOP if fault.kind in ("stop", "freeze") else _signal_of(fault)
            if self.members[fault.rank].down is None and self.processes[fault.rank].signal(number):
                self._injected(Injection(fault, now))
        for rank, until in list(self.continue_at.items()):
            if until <= now:
                del self.continue_at[rank]
                if rank not in self.frozen:
                    self.processes[rank].signal(signal.SIGCONT)
        if self.frozen and self._others_over():
            for rank in self.frozen:
                self.processes[rank].signal(signal.SIGCONT)
            self.frozen.clear()

    def _others_over(self) -> bool:
        others = [member for member in self.members if member.rank not in self.frozen]
        return all(self._over(member) for member in others)

    def _due(self, fault: Fault) -> float | None:
        """When a fault from outside is to come; None: not known yet."""
        if fault.phase == INIT:
            return self.begin + fault.after
        if not all(member.up or self._over(member) for member in self.members):
            return None
        if fault.phase == SHUTDOWN and self.shared[STOP_AT] < self.plan.number:
            return None
        return time.monotonic() if fault.after == 0 else self._anchor(fault.phase) + fault.after

    def _anchor(self, phase: str) -> float:
        if not hasattr(self, f"_{phase}_since"):
            setattr(self, f"_{phase}_since", time.monotonic())
        return getattr(self, f"_{phase}_since")

    def _may_stop(self) -> bool:
        """Whether all that is to happen before the ranks may end by themselves has happened."""
        if any(injection.fault.effect in (DEADLY, ENDS) for injection in self.outcome.injections):
            return False  # that is to end them
        happened = {injection.fault.number for injection in self.outcome.injections}
        happened |= {fault.number for fault, _ in self.outcome.impossible}
        for fault in self.plan.faults:
            if fault.phase == SHUTDOWN or fault.number in happened or self._over(self.members[fault.rank]):
                continue
            if fault.source == DRIVER and fault not in self.waiting:
                continue
            return False
        return not self.continue_at

    def _patience(self, deadline: float) -> float:
        now = time.monotonic()
        times = [deadline, *self.continue_at.values()]
        for fault in self.waiting:
            times.append(self._due(fault) or now + 0.5)
        return min(times) - now

    def _deadline(self) -> float:
        """Give every step its time; the last thing that happened counts."""
        injections = self.outcome.injections
        last = max([self.begin, *(one.at + one.fault.seconds for one in injections)])
        limit = self.plan.heartbeat_s + GRACE_S
        if not all(member.up for member in self.members):
            limit += self.plan.start_timeout_s
        if not any(one.fault.effect != HARMLESS for one in injections):
            limit += 40.0  # they still work
        return last + limit

    def _give_up(self) -> None:
        """Let those that hang say where, then end them."""
        for member, process in zip(self.members, self.processes):
            if not self._over(member):
                member.hung = True
                process.signal(signal.SIGCONT)
                process.signal(signal.SIGUSR1)
        time.sleep(1.0)
        for process in self.processes:
            process.signal(signal.SIGKILL)
            process.reap(block=True)


def _signal_of(fault: Fault) -> int:
    return signal.Signals[fault.detail or fault.kind.upper()]


def free_port() -> int:
    """Return a port that nobody has."""
    # Not one of those that the system gives to outgoing connections, so that nobody has it by chance.
    for _ in range(1000):
        port = random.SystemRandom().randrange(15000, 32000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port between 15000 and 32000")


def serve(options: Options, folder: pathlib.Path, jobs: int, results: int, oracle: Oracle) -> None:
    """Run the jobs whose numbers come from one descriptor; write what came out to the other."""
    system.adopt_orphans()
    with contextlib.suppress(OSError):  # else it is shared with everybody else's
        system.own_shared_memory(64 << 20)
    with open(jobs) as lines, open(results, "w") as out:
        for line in lines:
            place = folder / f"job{int(line)}"
            result = Job(options, int(line), place, oracle).run()
            shutil.rmtree(place)
            print(json.dumps(vars(result)), file=out, flush=True)
