# SPDX-License-Identifier: Apache-2.0
"""
Elastic jobs under faults: starts a job, hurts its processes one after the other, and judges what they wrote down.

A fault waits for an event, never for a time: for a number of commits, or for a recovery that has begun.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from typing import Callable

from horovod.chaos.elastic_diaries import Diaries
from horovod.chaos.elastic_faults import KINDS, Choice
from horovod.chaos.elastic_verdict import judge
from horovod.runner.program import find_horovodrun

LOOPS = ("numpy", "torch", "jax", "tape", "keras")
SAMPLES = 60
_SILENCE_S = 180.0
_TWICE = 0.4  # share of faults that another one follows during the recovery
_AT_RANK_0 = 0.3


@dataclass
class ElasticResult:
    """What came out of a job."""

    hurt: dict[int, int] = field(default_factory=dict)  # processes and their signals
    faults: dict[str, int] = field(default_factory=dict)  # by kind
    at_rank_0: int = 0
    in_recovery: int = 0
    commits: int = 0
    # By kind: from a fault until all survivors have done their first step in a new generation.
    seconds: dict[str, list[float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    errors: str = ""

    def count(self, kind: str) -> None:
        """Take note of a fault."""
        self.faults[kind] = self.faults.get(kind, 0) + 1

    def time(self, kind: str, seconds: float) -> None:
        """Take note of how long a recovery took."""
        self.seconds.setdefault(kind, []).append(seconds)

    def text(self) -> str:
        """Return a few lines for people."""
        lines = [
            f"{sum(self.faults.values())} faults ({self.at_rank_0} of rank 0, {self.in_recovery} during a recovery), "
            f"{self.commits} commits, {len(self.problems)} problems",
            "from a fault until all survivors have done a step without the lost rank:",
            *(f"  {kind:<9} {_spread(sorted(times))}" for kind, times in self.seconds.items()),
            *self.problems,
        ]
        return "\n".join(lines)

    def as_json(self) -> str:
        """Return all of it."""
        return json.dumps(asdict(self), indent=2)


def _spread(times: list[float]) -> str:
    shown = [f"{1000 * times[min(len(times) * part // 100, len(times) - 1)]:.0f} ms" for part in (50, 99)]
    return f"{len(times):>4} times, p50 {shown[0]}, p99 {shown[1]}, longest {1000 * times[-1]:.0f} ms"


class ElasticJob:
    """One job: `run` injects faults until there were enough, and lets the job finish."""

    def __init__(self, ranks: int, faults: int, seed: int, loop: str, only: tuple[str, ...] = ()) -> None:
        self._ranks = ranks
        self._faults = faults
        self._draws = random.Random(seed)
        self._choice = Choice(self._draws, only, ranks)
        self._loop = loop
        self._hosts_change = "hosts" in (only or KINDS)
        self._ends_launcher = "launcher" in only
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="hvd-elastic-"))
        self._diaries = Diaries(self._folder)
        self._result = ElasticResult()
        self._interrupted = False

    def run(self) -> ElasticResult:
        """Run the job."""
        words = ["-np", str(self._ranks), "--min-np", "1"]
        if self._hosts_change:
            self._set_slots(self._ranks)
            words += ["--max-np", str(self._ranks), "--host-discovery-script", f"cat {self._folder / 'hosts'}"]
        words += [sys.executable, "-m", "horovod.chaos.elastic_worker", "--folder", str(self._folder)]
        words += ["--loop", self._loop, "--samples", str(SAMPLES)]
        with open(self._folder / "errors", "w") as errors, open(self._folder / "output", "w") as output:
            job = subprocess.Popen([find_horovodrun(), *words], stdout=output, stderr=errors)
            try:
                self._inject(job)
                self._end(job)
            except TimeoutError as silence:
                self._result.problems.append(str(silence))
            except KeyboardInterrupt:
                self._interrupted = True
                self._result.problems.append("interrupted: the report is about the faults until then")
            finally:
                if job.poll() is None:
                    job.terminate()
                job.wait()
        self._diaries.read()
        return self._judged(job.returncode)

    def _end(self, job: subprocess.Popen) -> None:
        if not self._ends_launcher:
            (self._folder / "finish").touch()
            return self._wait(job, lambda: job.poll() is not None)
        self._wait(job, lambda: self._diaries.count("commit") > 0)
        self._result.count("launcher")
        began = time.monotonic()
        job.kill()
        job.wait()
        while self._left() and time.monotonic() - began < _SILENCE_S:
            time.sleep(0.01)
        self._result.time("launcher", time.monotonic() - began)

    def _left(self) -> list[str]:
        """Return the processes that are there."""
        return [path.stem for path in self._folder.glob("*.jsonl") if pathlib.Path(f"/proc/{path.stem}").exists()]

    def _judged(self, code: int) -> ElasticResult:
        result, events = self._result, self._diaries.events
        result.errors = (self._folder / "errors").read_text()
        result.commits = max((one["number"] for one in events if one["event"] == "commit"), default=0)
        finishes = not self._ends_launcher and not self._interrupted
        result.problems += judge(events, result.hurt, SAMPLES, result.errors, finishes)
        if code != (-signal.SIGKILL if self._ends_launcher else 0) and not self._interrupted:
            result.problems.append(f"horovodrun ended with {code}")
        if left := self._left():
            result.problems.append(f"processes are left: {', '.join(left)}")
        if result.problems:
            result.errors += f"\nthe diaries are in {self._folder}"
        else:
            shutil.rmtree(self._folder)
        return result

    def _inject(self, job: subprocess.Popen) -> None:
        while sum(self._result.faults.values()) < self._faults:
            commits, kind = self._draws.randint(1, 8), self._choice.next()
            left = self._faults - sum(self._result.faults.values())
            twice = KINDS[kind].deadly and self._ranks > 2 and left > 1 and self._draws.random() < _TWICE
            needed = self._ranks if twice or kind == "hosts" else KINDS[kind].ranks
            self._wait(job, lambda: self._diaries.count("commit") >= commits and len(self._members()) >= needed)  # noqa: B023
            if kind == "hosts":
                self._change_hosts(job)
            elif kind == "hang":
                self._hang(job)
            else:
                self._hurt_and_wait(job, kind, twice)

    def _hurt_and_wait(self, job: subprocess.Popen, kind: str, twice: bool) -> None:
        members = self._members()
        began = self._hurt(kind)
        if twice:
            self._wait(job, lambda: self._diaries.count("reset") > 0)
            members = self._members() | members
            began = self._hurt(self._choice.next_deadly())
            self._result.in_recovery += 1
        self._wait_for_steps(job, "twice" if twice else kind, began, set(members.values()))

    def _hang(self, job: subprocess.Popen) -> None:
        """Have a rank hang while another one is killed; it may come back when the others train again."""
        members = self._members()
        hung = members[self._draws.choice(sorted(members))]
        gate = self._folder / f"hang-{hung}"
        gate.touch()
        self._wait(job, lambda: any(one["event"] == "hang" and one["pid"] == hung for one in self._diaries.new))
        self._result.count("hang")
        began = self._hurt("sigkill", but=hung)
        self._wait_for_steps(job, "hang", began, set(members.values()) - {hung})
        gate.unlink()
        self._wait(job, lambda: hung in self._members().values())

    def _change_hosts(self, job: subprocess.Popen) -> None:
        """Take a slot away, and give it back."""
        for slots in (self._ranks - 1, self._ranks):
            self._diaries.new.clear()
            generation = self._diaries.generation()
            self._set_slots(slots)
            self._wait(
                job,
                lambda: self._diaries.generation() > generation and len(self._members()) == slots,  # noqa: B023
            )
        self._result.count("hosts")

    def _set_slots(self, slots: int) -> None:
        new = self._folder / "hosts.new"
        new.write_text(f"localhost:{slots}\n")
        new.replace(self._folder / "hosts")

    def _hurt(self, kind: str, but: int = 0) -> float:
        """Hurt a member, and begin to count events anew. Returns when that was."""
        members = {rank: pid for rank, pid in self._members().items() if pid != but}
        rank = 0 if 0 in members and self._draws.random() < _AT_RANK_0 else self._draws.choice(sorted(members))
        self._diaries.new.clear()
        began = time.monotonic()
        os.kill(members[rank], KINDS[kind].signal)
        self._result.hurt[members[rank]] = int(KINDS[kind].signal)
        self._result.count(kind)
        self._result.at_rank_0 += rank == 0
        return began

    def _wait_for_steps(self, job: subprocess.Popen, kind: str, began: float, members: set[int]) -> None:
        """Wait until all of the members that are left have done a step in a generation that the lost are not in."""
        survivors, lost = members - set(self._result.hurt), members & set(self._result.hurt)
        steps: dict[int, float] = {}

        def is_there() -> bool:
            last = max(self._diaries.generation(pid) for pid in lost)
            steps.clear()
            for one in self._diaries.new:
                if one["event"] == "stepped" and one["time"] > began and one["generation"] > last:
                    steps.setdefault(one["pid"], one["time"])
            return survivors <= steps.keys()

        self._wait(job, is_there)
        if survivors:
            self._result.time(kind, max(steps[pid] for pid in survivors) - began)

    def _members(self) -> dict[int, int]:
        """Return the processes of the newest generation that are there, by rank."""
        return {rank: pid for rank, pid in self._diaries.members().items() if pid not in self._result.hurt}

    def _wait(self, job: subprocess.Popen, is_there: Callable[[], bool]) -> None:
        self._diaries.latest = time.monotonic()
        while not is_there():
            over = job.poll() is not None
            self._diaries.read()
            if is_there():
                return
            if over:
                raise TimeoutError(f"the job ended too early, with {job.returncode}")
            if time.monotonic() - self._diaries.latest > _SILENCE_S:
                raise TimeoutError(f"nothing happened for {_SILENCE_S:.0f} s")
            time.sleep(0.002)
