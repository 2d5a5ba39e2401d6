# SPDX-License-Identifier: Apache-2.0
"""
Elastic jobs under faults: starts a job, kills its processes one after the other, and judges what they wrote down.

A fault waits for an event, never for a time: for a number of commits, or for a recovery that has begun.
"""

from __future__ import annotations

import collections
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

from horovod.chaos.elastic_verdict import judge
from horovod.runner.program import find_horovodrun

LOOPS = ("numpy", "torch", "tape", "keras")
SAMPLES = 60
_SILENCE_S = 180.0
_SIGNALS = (signal.SIGKILL,) * 8 + (signal.SIGTERM, signal.SIGINT)
_TWICE = 0.4  # share of faults that another one follows during the recovery
_AT_RANK_0 = 0.3


@dataclass
class ElasticResult:
    """What came out of a job."""

    hurt: dict[int, int] = field(default_factory=dict)  # processes and their signals
    at_rank_0: int = 0
    in_recovery: int = 0
    commits: int = 0
    seconds: list[float] = field(default_factory=list)  # from a fault to the next commit of those that are left
    problems: list[str] = field(default_factory=list)
    errors: str = ""

    def text(self) -> str:
        """Return a few lines for people."""
        times = sorted(self.seconds)
        median = f"{1000 * times[len(times) // 2]:.0f} ms, longest {1000 * times[-1]:.0f} ms" if times else "none"
        lines = [
            f"{len(self.hurt)} faults ({self.at_rank_0} of rank 0, {self.in_recovery} during a recovery), "
            f"{self.commits} commits, {len(self.problems)} problems",
            f"from a fault to the next commit: median {median}",
            *self.problems,
        ]
        return "\n".join(lines)

    def as_json(self) -> str:
        """Return all of it."""
        return json.dumps(asdict(self), indent=2)


class ElasticJob:
    """One job: `run` injects faults until there were enough, and lets the job finish."""

    def __init__(self, ranks: int, faults: int, seed: int, loop: str) -> None:
        self._ranks = ranks
        self._faults = faults
        self._draws = random.Random(seed)
        self._loop = loop
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="hvd-elastic-"))
        self._read: dict[pathlib.Path, int] = collections.defaultdict(int)
        self._events: list[dict] = []
        self._new: list[dict] = []
        self._latest = time.monotonic()
        self._result = ElasticResult()

    def run(self) -> ElasticResult:
        """Run the job."""
        worker = [sys.executable, "-m", "horovod.chaos.elastic_worker", "--folder", str(self._folder)]
        words = ["-np", str(self._ranks), "--min-np", "1", *worker, "--loop", self._loop, "--samples", str(SAMPLES)]
        with open(self._folder / "errors", "w") as errors, open(self._folder / "output", "w") as output:
            job = subprocess.Popen([find_horovodrun(), *words], stdout=output, stderr=errors)
            try:
                self._inject(job)
                (self._folder / "finish").touch()
                self._wait(job, lambda: job.poll() is not None)
            except TimeoutError as silence:
                self._result.problems.append(str(silence))
            finally:
                if job.poll() is None:
                    job.terminate()
                job.wait()
        self._look()
        return self._judged(job.returncode)

    def _judged(self, code: int) -> ElasticResult:
        result = self._result
        result.errors = (self._folder / "errors").read_text()
        result.commits = max((one["number"] for one in self._events if one["event"] == "commit"), default=0)
        result.problems += judge(self._events, result.hurt, SAMPLES, result.errors)
        if code != 0:
            result.problems.append(f"horovodrun ended with {code}")
        left = [path.stem for path in self._folder.glob("*.jsonl") if pathlib.Path(f"/proc/{path.stem}").exists()]
        if left:
            result.problems.append(f"processes are left: {', '.join(left)}")
        if result.problems:
            result.errors += f"\nthe diaries are in {self._folder}"
        else:
            shutil.rmtree(self._folder)
        return result

    def _inject(self, job: subprocess.Popen) -> None:
        while len(self._result.hurt) < self._faults:
            commits = self._draws.randint(1, 8)
            twice = self._ranks > 2 and self._faults - len(self._result.hurt) > 1 and self._draws.random() < _TWICE
            needed = self._ranks if twice else 2
            self._wait(job, lambda: self._counts("commit") >= commits and len(self._members()) >= needed)  # noqa: B023
            began = self._hurt()
            if twice:
                self._wait(job, lambda: self._counts("reset") > 0)
                self._hurt()
                self._result.in_recovery += 1
            self._wait(job, lambda: any(one["event"] == "commit" and one["time"] > began for one in self._new))  # noqa: B023
            self._result.seconds.append(time.monotonic() - began)

    def _hurt(self) -> float:
        """Hurt a member, and begin to count events anew."""
        members = self._members()
        rank = 0 if 0 in members and self._draws.random() < _AT_RANK_0 else self._draws.choice(sorted(members))
        number = self._draws.choice(_SIGNALS)
        self._new.clear()
        os.kill(members[rank], number)
        self._result.hurt[members[rank]] = int(number)
        self._result.at_rank_0 += rank == 0
        return time.monotonic()

    def _members(self) -> dict[int, int]:
        """Return the processes of the newest generation that are there, by rank."""
        entered = [one for one in self._events if one["event"] == "enter"]
        newest = max((one["generation"] for one in entered), default=0)
        return {
            one["rank"]: one["pid"]
            for one in entered
            if one["generation"] == newest and one["pid"] not in self._result.hurt
        }

    def _counts(self, event: str) -> int:
        """Return how often it happened since the last fault, in the life of one process."""
        return max(collections.Counter(one["pid"] for one in self._new if one["event"] == event).values(), default=0)

    def _wait(self, job: subprocess.Popen, is_there) -> None:
        self._latest = time.monotonic()
        while not is_there():
            if job.poll() is not None:
                self._look()
                if is_there():
                    return
                raise TimeoutError(f"the job ended too early, with {job.returncode}")
            if not self._look() and time.monotonic() - self._latest > _SILENCE_S:
                raise TimeoutError(f"nothing happened for {_SILENCE_S:.0f} s")
            time.sleep(0.002)

    def _look(self) -> bool:
        """Read what is new. Returns whether anything is."""
        before = len(self._events)
        for path in self._folder.glob("*.jsonl"):
            with open(path) as file:
                file.seek(self._read[path])
                for line in file.read().splitlines(keepends=True):
                    if line.endswith("\n"):
                        self._read[path] += len(line)
                        self._events.append(json.loads(line))
        self._new += self._events[before:]
        if len(self._events) > before:
            self._latest = time.monotonic()
        return len(self._events) > before
