# SPDX-License-Identifier: Apache-2.0
"""Keeps several runners busy until enough faults have happened."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import tempfile
import time
from typing import Callable

from horovod.chaos import runner, system
from horovod.chaos.operations import Oracle
from horovod.chaos.plan import Options
from horovod.chaos.runner import JobResult


class RunnerDied(RuntimeError):
    """A process that ran jobs is gone: an error of this package."""


class _Runner:
    """A process that runs jobs."""

    def __init__(self, options: Options, folder: pathlib.Path, oracle: Oracle) -> None:
        job_read, self._jobs = os.pipe()
        self.results, result_write = os.pipe()
        self.job: int | None = None
        self.pid = system.fork(
            lambda: runner.serve(options, folder, job_read, result_write, oracle), (job_read, result_write)
        )
        os.close(job_read)
        os.close(result_write)
        self._lines = os.fdopen(self.results)

    def give(self, job: int) -> None:
        """Have it run a job."""
        self.job = job
        os.write(self._jobs, f"{job}\n".encode())

    def take(self) -> JobResult:
        """Return what came out of the job; it must be there."""
        line = self._lines.readline()
        if not line:
            raise RunnerDied(f"the process that ran job {self.job} died")
        self.job = None
        return JobResult(**json.loads(line))

    def end(self) -> None:
        """End it, and with it its workers."""
        os.close(self._jobs)
        self._lines.close()
        if self.job is not None:
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def run(
    options: Options,
    faults: int,
    parallel: int,
    progress: Callable[[JobResult, float], None],
    only_job: int | None = None,
) -> None:
    """Run jobs until so many faults have happened, or the one that is asked for; `progress` gets each job's result."""
    oracle = Oracle()  # before the forks, so that all share it
    begin = time.monotonic()
    injected = 0
    next_job = 0
    with tempfile.TemporaryDirectory(prefix="horovod-chaos-") as folder, contextlib.ExitStack() as stack:
        count = 1 if only_job is not None else parallel
        runners = [_Runner(options, pathlib.Path(folder), oracle) for _ in range(count)]
        for one in runners:
            stack.callback(one.end)
        if only_job is not None:
            runners[0].give(only_job)
        while True:
            for one in runners:
                if only_job is None and one.job is None and injected < faults:
                    one.give(next_job)
                    next_job += 1
            busy = {one.results: one for one in runners if one.job is not None}
            if not busy:
                return
            for ready in select.select(list(busy), [], [])[0]:
                result = busy[ready].take()
                injected += len(result.injected)
                progress(result, time.monotonic() - begin)
