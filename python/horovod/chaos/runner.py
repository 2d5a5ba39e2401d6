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
from dataclasses import dataclass, field, replace

from horovod.chaos import system
from horovod.chaos.disk import Disk
from horovod.chaos.operations import Oracle
from horovod.chaos.path import Path
from horovod.chaos.plan import EXTENDED, PATH, Options, Round, plan_job
from horovod.chaos.verdict import HANG, LEAK, Outcome, judge
from horovod.chaos.watch import GRACE_S, Process, Watch
from horovod.chaos.worker import STOP_AT

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
    unauthenticated: list[bool] = field(default_factory=list)  # rounds whose tensors were changed: a wrong result?
    logs: str = ""


@dataclass
class Ground:
    """What the jobs of a runner stand on, besides the machine; None: why there is none."""

    path: Path | None = None
    disk: Disk | None = None
    why: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def prepare(options: Options, folder: pathlib.Path, alone: bool) -> Ground:
        """Make what the faults need; `alone`: what this process mounts nobody else sees."""
        made = Ground()
        if not set(EXTENDED).isdisjoint(options.only):
            try:
                made.path = Path(3, options.seed)
            except OSError as error:
                made.why[PATH] = str(error)
            try:
                made.disk = Disk(folder) if alone else None
            except OSError as error:
                made.why["disk"] = str(error)
        return made

    def fit(self, plan: Round) -> tuple[Round, list[tuple[str, str]]]:
        """Return a round without what cannot be here, and that with its reasons."""
        lacks = [fault for fault in plan.faults if fault.kind in self.why or (fault.rank < 0 and PATH in self.why)]
        if not lacks:
            return plan, []
        left = [fault for fault in plan.faults if fault not in lacks]
        transport = "hosts" if PATH in self.why and plan.transport == PATH else plan.transport
        reasons = [(fault.kind, self.why.get(fault.kind) or self.why[PATH]) for fault in lacks]
        return replace(plan, faults=left, transport=transport), reasons


class Job:
    """One job."""

    def __init__(self, options: Options, number: int, folder: pathlib.Path, oracle: Oracle, ground: Ground) -> None:
        self.options = options
        self.ground = ground
        self.result = JobResult(number)
        self.folder = folder
        self.oracle = oracle
        self.memory = mmap.mmap(-1, 4096)
        self.shared = memoryview(self.memory).cast("q")
        self.shared[STOP_AT] = -1  # no round may end yet
        self.alive: list[Process] = []
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
        for planned in plan_job(self.options, self.result.job):
            plan, impossible = self.ground.fit(planned)
            self.result.impossible += impossible
            self._round(plan)
            if any(kind == HANG for kind, *_ in self.result.problems):
                break
        self._end()
        if left := set(system.shared_files()) - set(shared_before):
            self._problem(LEAK, f"/dev/shm has {sorted(left)}", [])
        if left := self._strange_files():
            self._problem(LEAK, f"the job's folder has {left}", [])
        if orphans := set(system.children()) - ({self.ground.path.pid} if self.ground.path else set()):
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
            self.alive.append(Process(self.started, self.shared, self.folder, self.oracle))
            self.started += 1
        processes = rng.sample(self.alive, plan.size)
        environment = self._environment(plan)
        on_path = self.ground.path if plan.transport == PATH else None
        for rank, process in enumerate(processes):
            env = dict(environment, HOROVOD_RANK=str(rank))
            host = rank * 2 // plan.size
            if plan.transport in ("hosts", PATH):
                env["HOROVOD_HOSTNAME"] = f"host{host}"
            own = [fault for fault in plan.to_json()["faults"] if fault["rank"] == rank]
            network = on_path.network(host) if on_path else ""
            process.send({**plan.to_json(), "rank": rank, "env": env, "faults": own, "network": network})
        outcome = Watch(plan, processes, self.shared, self.ground.path, self.ground.disk).until_over()
        shutil.rmtree(self.folder / "flight", ignore_errors=True)
        for file in self._expected_files():
            file.unlink()
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
        if any(one.fault.kind == "tensors" for one in outcome.injections):
            wrong = [
                member for member in outcome.members if member.late or (member.down or {}).get("outcome") == "wrong"
            ]
            self.result.unauthenticated.append(bool(wrong))
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

    def _expected_files(self) -> list[pathlib.Path]:
        flights = list(self.ground.disk.folder.glob("flight*")) if self.ground.disk else []
        return [*flights, *self.folder.glob("core*")]

    def _flight_folder(self, plan: Round) -> pathlib.Path | None:
        """Make the folder for flight files, with the faults that it has."""
        kinds = {fault.kind for fault in plan.faults}
        if "disk" in kinds and self.ground.disk:
            self.ground.disk.freeze()
            return self.ground.disk.folder
        if "pipe" not in kinds:
            return None
        folder = self.folder / "flight"
        folder.mkdir()
        for rank in range(plan.size):
            for name in (f"flight.{rank}.json", f"flight.{rank}.json.part"):
                os.mkfifo(folder / name)
        return folder

    def _environment(self, plan: Round) -> dict[str, str]:
        if plan.rendezvous == "port":
            self.port = free_port()
        address = f"127.0.0.1:{self.port}"
        if plan.transport == PATH:
            address = f"{self.ground.path.addresses[0]}:{self.port}" if self.ground.path else ""
        if plan.rendezvous == "folder":
            address = f"file://{self.folder}/meeting"
        flight = self._flight_folder(plan)
        return {
            **({"HOROVOD_FLIGHT_DIR": str(flight)} if flight else {}),
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

    def _dismiss(self, process: Process) -> None:
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
    alone = False
    with contextlib.suppress(OSError):  # else it is shared with everybody else's
        system.own_shared_memory(64 << 20)
        alone = True
    ground = Ground.prepare(options, folder / f"ground{os.getpid()}", alone)
    with open(jobs) as lines, open(results, "w") as out:
        for line in lines:
            place = folder / f"job{int(line)}"
            result = Job(options, int(line), place, oracle, ground).run()
            shutil.rmtree(place)
            print(json.dumps(vars(result)), file=out, flush=True)
