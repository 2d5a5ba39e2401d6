# SPDX-License-Identifier: Apache-2.0
"""Runs horovodrun for tests, and looks at which of its processes are left."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import time

from horovod.runner.program import find_horovodrun

HOROVODRUN = find_horovodrun()


def clean_environment(**more: str) -> dict[str, str]:
    """Return this process's environment without what makes tests differ from each other."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    return dict(environment, **more)


def run(command: list[str], env: dict[str, str], timeout: float = 120) -> subprocess.CompletedProcess:
    """Run a command to its end, with nothing to read, and keep what it says."""
    return subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False
    )


def horovodrun(*words: str, env: dict[str, str] | None = None, timeout: float = 120) -> subprocess.CompletedProcess:
    """Run it to its end."""
    return run([HOROVODRUN, *map(str, words)], clean_environment(**(env or {})), timeout)


def started(*words: str, **options):
    """Start it; it is gone after the block."""
    return start([HOROVODRUN, *map(str, words)], clean_environment(), **options)


@contextlib.contextmanager
def start(command: list[str], env: dict[str, str], **options):
    """Start a command; it is gone after the block."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    process = subprocess.Popen(command, env=env, text=True, **pipes)
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def report(result: subprocess.CompletedProcess) -> dict:
    """Return the report that --json printed."""
    return json.loads(result.stdout.splitlines()[-1])


def wait_until(condition, timeout: float = 60) -> None:
    """Wait for something that another process does."""
    limit = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def pids_in(folder: pathlib.Path, count: int) -> list[int]:
    """Wait until `count` processes have written their ids into files of a folder."""

    def ready() -> list[int]:
        texts = [file.read_text() for file in folder.iterdir()]
        return [int(text) for text in texts if text.endswith("\n")]

    wait_until(lambda: len(ready()) == count)
    return ready()
