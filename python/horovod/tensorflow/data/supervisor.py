# SPDX-License-Identifier: Apache-2.0
"""
Processes that a rank keeps alive: a process that dies is started again with the same words, hence at the same address.

TensorFlow's readers find a server again only at its old address. At another one a finite epoch would never end.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Callable

from horovod.tensorflow.data import server_process
from horovod.tensorflow.data.registry import TimeoutException

STOP_S = 1.0
# A server that dies more often than this within the time is of no use: something is wrong that a start does not mend.
MOST_DEATHS = 30
WITHIN_S = 60.0
MOST_EARLY_DEATHS = 3
# Variables of launchers and of this job: a child is no rank, and its interpreter shall not take itself for one.
_DROPPED = ("HOROVOD_", "OMPI_", "PMIX", "PMI_", "LD_PRELOAD")


class Child:
    """
    One process and those that follow it.

    A thread of its own starts each of them and waits for its end, because the kernel ends a process of this kind with
    the thread that started it. Thread safety: all methods by any thread.
    """

    def __init__(self, name: str, command: list[str], env: Mapping[str, str], failed: Callable[[str], None]) -> None:
        self.name = name
        self.restarts = 0
        self._command = command
        self._env = dict(env)
        self._failed = failed
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._failure = ""
        self._thread = threading.Thread(target=self._supervise, name=f"hvd {name}", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Return the process that runs now."""
        with self._lock:
            return self._process.pid if self._process is not None and self._process.poll() is None else None

    def wait_ready(self, timeout: float) -> None:
        """Return when the process has said that it is ready."""
        if not self._ready.wait(timeout):
            raise TimeoutException(f"the data service's {self.name} was not ready within {timeout:g} s")
        if self._failure:
            raise RuntimeError(self._failure)

    def stop(self) -> None:
        """End the process, and return when it is gone."""
        self._stopping.set()
        with self._lock:
            self._close_input()
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            with self._lock:
                if self._process is not None:
                    self._process.kill()
            self._thread.join()

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _supervise(self) -> None:
        deaths: list[float] = []
        early = 0
        while not self._stopping.is_set():
            code, was_ready = self._run_once()
            if self._stopping.is_set():
                break
            now = time.monotonic()
            deaths = [one for one in deaths if now - one < WITHIN_S] + [now]
            if code != -signal.SIGKILL:  # by somebody else, or for want of memory: not of the server's own making
                early = 0 if was_ready else early + 1
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            if early >= MOST_EARLY_DEATHS or len(deaths) > MOST_DEATHS:
                when = "before it was ready" if early else f"for the {len(deaths)}th time in {WITHIN_S:g} s"
                self._failure = f"the data service's {self.name} {how} {when}; it is not started again"
                self._ready.set()
                self._failed(self._failure)
                return
            self.restarts += 1
            print(f"hvd data service: the {self.name} {how}; it is started again", file=sys.stderr, flush=True)

    def _run_once(self) -> tuple[int, bool]:
        with self._lock:
            if self._stopping.is_set():
                return 0, False
            process = self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._env, cwd="/"
            )
        assert process.stdout is not None
        ready = process.stdout.readline() == b"ready\n"
        if ready:
            self._ready.set()
        code = process.wait()
        process.stdout.close()
        with self._lock:
            self._close_input()
        return code, ready


def environment() -> dict[str, str]:
    """Return the environment of helper processes: the user's, without what makes a process a rank."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}


def server(name: str, failed: Callable[[str], None], **wanted: Any) -> Child:
    """Start a dispatcher or worker; `wanted` is what server_process.py reads."""
    library = _listen_library()
    env = {
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **environment(),
        "LD_PRELOAD": str(library),
        # A server computes on the CPU; it must not take memory of the GPU that a rank of this host trains with.
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    return Child(name, [sys.executable, server_process.__file__, json.dumps(wanted)], env, failed)


def _listen_library() -> pathlib.Path:
    from horovod.common import library

    path = pathlib.Path(library.load()._name).with_name("libhvd_listen.so")
    if not path.is_file():
        raise ImportError(f"{path} is missing: reinstall the hvd package")
    return path
