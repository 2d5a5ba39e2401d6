# SPDX-License-Identifier: Apache-2.0
"""One round from outside: workers as processes, signals at their times, and when it is over."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import time

from horovod.chaos import path as on_path
from horovod.chaos.disk import Disk
from horovod.chaos.operations import Oracle
from horovod.chaos.path import Path
from horovod.chaos.plan import DEADLY, DRIVER, ENDS, EVERY_KIND, HARMLESS, INIT, ON_PATH, SHUTDOWN, Fault, Round
from horovod.chaos.verdict import Injection, Member, Outcome
from horovod.chaos.worker import STOP_AT, start

# How long a frozen file system stays so.
DISK_S = 3.0
# What a machine that is busy with other things may take on top of every limit. It only has to catch hangs.
GRACE_S = 20.0


class Process:
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
        """Have it take part in a round."""
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

    def stopped(self) -> bool:
        """Whether SIGSTOP has had its effect."""
        if self.status is not None:
            return False
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
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


class Watch:
    """One round from outside: hears what its workers tell, sends signals at their times, and sees when it is over."""

    def __init__(
        self, plan: Round, processes: list[Process], shared: memoryview, path: Path | None, disk: Disk | None
    ) -> None:
        self.plan = plan
        self.path = path
        self.disk = disk
        self.mend_at: dict[Fault, float] = {}  # faults of the path that end by themselves
        self.changing: Fault | None = None  # the relay is to change something, and has found nothing yet
        self.thaw_at: float | None = None
        self.processes = processes
        self.shared = shared
        self.members = [Member(rank, process.number) for rank, process in enumerate(processes)]
        self.outcome = Outcome(plan, self.members, [], [])
        self.begin = time.monotonic()
        self.waiting: list[Fault] = [fault for fault in plan.faults if fault.source == DRIVER]
        self.since: dict[str, float] = {}  # phase: when all ranks were seen to be in it
        self.continue_at: dict[int, float] = {}  # rank: when it gets SIGCONT
        self.frozen: set[int] = set()
        self.continued: set[int] = set()
        self.doomed: set[int] = set()  # ranks that got a deadly signal from here
        self.skipped: set[int] = set()  # faults that found nothing to break
        self.poll = select.poll()
        for process in processes:
            self.poll.register(process.events, select.POLLIN)
            self.poll.register(process.pidfd, select.POLLIN)

    def until_over(self) -> Outcome:
        """Return when no rank takes part any more."""
        deadline = self._deadline()
        while not all(self._over(member) for member in self.members):
            self._send_signals()
            self._mend()
            if self._may_stop():
                self.shared[STOP_AT] = max(self.shared[STOP_AT], self.plan.number)
            self._hear(self._patience(deadline))
            deadline = self._deadline()
            if time.monotonic() > deadline:
                self._give_up()
                break
        self._mend()
        if self.path:
            self.path.reset()
        if self.disk:
            self.disk.thaw()
        return self.outcome

    def _over(self, member: Member) -> bool:
        process = self.processes[member.rank]
        if process.status is not None:
            return member.rank not in self.continue_at
        if member.rank in self.continue_at or member.rank in self.frozen or member.rank in self.doomed:
            return False
        return member.down is not None and member.down["outcome"] != "left"

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
            if "skipped" in event:
                self.skipped.add(fault.number)
            elif "impossible" in event:
                self.outcome.impossible.append((fault, event["impossible"]))
            else:
                self._injected(Injection(fault, event["t"], event.get("ports", [])))

    def _injected(self, injection: Injection) -> None:
        fault = injection.fault
        self.outcome.injections.append(injection)
        if self.thaw_at is None and any(one.kind == "disk" for one in self.plan.faults):
            self.thaw_at = injection.at + DISK_S
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
            if fault.kind in ON_PATH:
                self._hurt_path(fault)
                continue
            number = signal.SIGSTOP if fault.kind in ("stop", "freeze") else _signal_of(fault)
            if self.members[fault.rank].down is None and self.processes[fault.rank].signal(number):
                self._injected(Injection(fault, now))
                if EVERY_KIND[fault.kind].effect == DEADLY:
                    self.doomed.add(fault.rank)
        if self.frozen and self._others_over():
            self.continue_at.update(dict.fromkeys(self.frozen, now))
            self.frozen.clear()
        for rank, until in list(self.continue_at.items()):
            if until <= now:
                del self.continue_at[rank]
                if rank not in self.frozen:
                    self.processes[rank].signal(signal.SIGCONT)
                    self.continued.add(rank)
        # One that told that it will stop itself may do so only now.
        for process in [self.processes[rank] for rank in self.continued - self.frozen - set(self.continue_at)]:
            if process.stopped():
                process.signal(signal.SIGCONT)

    def _hurt_path(self, fault: Fault) -> None:
        assert self.path
        words, now = self.path.words, time.monotonic()
        if fault.kind in ("control", "tensors"):
            self.changing = fault
            tls = fault.kind == "control" and self.plan.encrypt
            words[on_path.CHANGE] = on_path.ANY if tls else on_path.WHAT[fault.kind]
            return
        if fault.kind == "loss":
            words[on_path.LOSS] = 100 + fault.at * 13 % 900
        elif fault.kind == "lag":
            words[on_path.DELAY_US] = 1000 + fault.at * 571 % 39000
        elif fault.kind == "cut":
            words[on_path.CUT] = 1
        else:
            self.path.flood([process.pid for process in self.processes])
        if fault.effect == HARMLESS:
            self.mend_at[fault] = now + fault.seconds
        self._injected(Injection(fault, now))

    def _mend(self) -> None:
        """See what the relay did, and end what has lasted long enough."""
        now = time.monotonic()
        if self.changing and self.path and self.path.words[on_path.CHANGED]:
            words = self.path.words
            self._injected(Injection(self.changing, now, [words[on_path.FROM_PORT], words[on_path.TO_PORT]]))
            self.changing = None
        for fault in [fault for fault, until in self.mend_at.items() if until <= now]:
            del self.mend_at[fault]
            if self.path:
                self.path.mend(fault.kind)
        if self.thaw_at is not None and self.thaw_at <= now and self.disk:
            self.disk.thaw()
            self.thaw_at = float("inf")

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
        return self.since.setdefault(fault.phase, time.monotonic()) + fault.after

    def _may_stop(self) -> bool:
        """Whether all that is to happen before the ranks may end by themselves has happened."""
        if any(injection.fault.effect in (DEADLY, ENDS) for injection in self.outcome.injections):
            return False  # that is to end them
        happened = {injection.fault.number for injection in self.outcome.injections}
        happened |= self.skipped | {fault.number for fault, _ in self.outcome.impossible}
        for fault in self.plan.faults:
            over = fault.kind not in ON_PATH and self._over(self.members[fault.rank])
            if fault.phase == SHUTDOWN or fault.number in happened or over:
                continue
            if fault.source == DRIVER and fault not in self.waiting and fault != self.changing:
                continue
            return False
        return not self.continue_at and not self.mend_at

    def _patience(self, deadline: float) -> float:
        now = time.monotonic()
        times = [deadline, *self.continue_at.values(), *self.mend_at.values()]
        if self.thaw_at is not None:
            times.append(self.thaw_at)
        if self.continued or self.changing:
            times.append(now + 0.02)
        for fault in self.waiting:
            times.append(self._due(fault) or now + 0.5)
        return min(times) - now

    def _deadline(self) -> float:
        """Give every step its time; the last thing that happened counts."""
        injections = self.outcome.injections
        last = max([self.begin, *(one.at + one.fault.seconds for one in injections)])
        limit = self.plan.heartbeat_s + GRACE_S
        # A path that is cut before a peer has said that its init is over leaves that peer as one that still starts.
        cut = any(one.fault.kind == "cut" for one in injections)
        if cut or not all(member.up for member in self.members):
            limit += self.plan.start_timeout_s
        if not any(one.fault.effect != HARMLESS for one in injections):
            limit += 40.0  # they still work
        return last + limit

    def _give_up(self) -> None:
        """Let those that hang say where, then end them."""
        if self.disk:
            self.disk.thaw()
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
