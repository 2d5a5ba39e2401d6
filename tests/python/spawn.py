# SPDX-License-Identifier: Apache-2.0
"""
Runs a command as n ranks on this machine and collects what each of them wrote.

Tests of the engine start ranks in this plain way, so that nothing but the engine ends them; users have horovodrun.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from preloaded import Rank

# How long the others may go on after the first failure: they shall still say what they saw of it.
GRACE_S = 15.0

# The kernel ends a rank with the one that started it, who may be killed.
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")


@dataclass(frozen=True)
class RankResult:
    """How one rank ended. `returncode` is negative for a signal; `killed` means that it was ended from here."""

    rank: int
    returncode: int
    output: str
    killed: bool


class RanksFailed(RuntimeError):
    """Some rank failed; the text has the output of all."""


def free_port() -> int:
    """Return a port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def spawn(
    command: Sequence[str],
    ranks: int,
    *,
    env: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    preloaded: str = "",
) -> list[RankResult]:
    """
    Run `command` as ranks 0..ranks-1 and return when all are gone, at most a little more than `timeout` seconds.

    A command of Python may begin with a framework already imported, `preloaded`; see preloaded.py.
    """
    address = f"127.0.0.1:{free_port()}"
    with contextlib.ExitStack() as stack:
        # Files, not pipes: a rank never waits for somebody to read.
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(ranks)]
        processes: list[subprocess.Popen | Rank] = []
        stack.callback(_kill, processes)
        for rank, file in enumerate(files):
            rank_env = dict(os.environ, PYTHONUNBUFFERED="1", **(env or {}))
            rank_env.update(HOROVOD_RANK=str(rank), HOROVOD_SIZE=str(ranks), HOROVOD_RENDEZVOUS_ADDR=address)
            if preloaded:
                processes.append(Rank(preloaded, rank, command, rank_env, file.fileno()))
                continue
            processes.append(
                subprocess.Popen(
                    [*DIES_WITH_US, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=rank_env,
                    start_new_session=True,
                )
            )
        killed = _wait(processes, time.monotonic() + timeout)
        results = []
        for rank, (process, file) in enumerate(zip(processes, files)):
            file.seek(0)
            text = file.read().decode("utf-8", "replace")
            results.append(RankResult(rank, process.returncode, text, rank in killed))
        return results


def run(command: Sequence[str], ranks: int, **options) -> list[str]:
    """As `spawn`, but return the outputs only, and raise RanksFailed unless every rank ended well."""
    results = spawn(command, ranks, **options)
    if any(result.returncode != 0 for result in results):
        raise RanksFailed("\n".join(describe(result) for result in results))
    return [result.output for result in results]


def describe(result: RankResult) -> str:
    """Return a block of text about a rank for a person to read."""
    end = "killed after time-out or another rank's failure" if result.killed else f"exit {result.returncode}"
    return f"--- rank {result.rank}: {end}\n{result.output}"


def _wait(processes: Sequence[subprocess.Popen | Rank], deadline: float) -> set[int]:
    while True:
        running = [rank for rank, process in enumerate(processes) if process.poll() is None]
        if not running:
            return set()
        if any(process.returncode not in (None, 0) for process in processes):
            deadline = min(deadline, time.monotonic() + GRACE_S)
        if time.monotonic() > deadline:
            _kill(processes)
            return set(running)
        # Wait for any one of them: a little while on the first, then look at all again.
        with contextlib.suppress(subprocess.TimeoutExpired):
            processes[running[0]].wait(timeout=0.02)


def _kill(processes: Sequence[subprocess.Popen | Rank]) -> None:
    for process in processes:
        if process.poll() is None:
            # Each rank is the leader of its own group, so its children go with it.
            if isinstance(process, Rank):
                process.kill()
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
