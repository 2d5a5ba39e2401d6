# SPDX-License-Identifier: Apache-2.0
"""
One rank: a forked process that is told over a pipe which round to take part in, and tells what happened.

What it tells are lines of JSON with the key "event": `up` (init is over), `inject` (a fault is about to happen), `down`
(the round is over for this rank) and `late` (memory changed after that).
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import json
import os
import re
import signal
import sys
import time
import traceback
from typing import Any, TextIO

import horovod.numpy as hvd
from horovod.chaos import path, system
from horovod.chaos.inject import Injected, Injector, Leave, own_ports
from horovod.chaos.operations import Oracle
from horovod.chaos.plan import INIT, SHUTDOWN, faults_from_json
from horovod.chaos.workload import Workload, WrongResult

# For threads that have done their work and are about to end.
_TIDY_S = 5.0
# Where the runner and its workers share a few numbers.
STOP_AT, FIRST_PROGRESS = 0, 8


class Worker:
    """A process that is a rank in one round after the other."""

    def __init__(self, number: int, commands: TextIO, events: int, shared: memoryview, oracle: Oracle) -> None:
        self.number = number
        self.commands = commands
        self.events = events
        self.shared = shared
        self.oracle = oracle
        self.workload: Workload | None = None
        self.home = f"/proc/{os.getppid()}/ns/net"  # of the runner, who never leaves it
        self.away = False

    def serve(self) -> None:
        """Take part in rounds until there are no more."""
        for line in self.commands:
            self._look_back()
            self._round(json.loads(line))
        self._look_back()

    def tell(self, event: str, **more: Any) -> None:
        """Tell the runner something."""
        # One write of less than PIPE_BUF: it is there as a whole or not at all.
        text = json.dumps({"event": event, "t": time.monotonic(), **more})
        os.write(self.events, text.encode() + b"\n")

    def _look_back(self) -> None:
        # All ranks of the last round have ended by now.
        if self.workload is None:
            return
        try:
            self.workload.check_kept()
        except WrongResult as wrong:
            self.tell("late", wrong=str(wrong))
        self.workload = None

    def _round(self, spec: dict) -> None:
        for name in [name for name in os.environ if name.startswith("HOROVOD_")]:
            del os.environ[name]
        os.environ.update(spec["env"])
        injector = Injector(
            faults_from_json(spec["faults"]),
            lambda fault, **more: self.tell("inject", fault=fault.number, **more),
        )
        self._go_to(spec["network"])
        injector.prepare()
        hvd.empty(8)  # makes the arena, which stays for good
        gc.collect()
        before = system.Traces.look()
        answer: dict[str, Any] = {"outcome": "done", "where": INIT}
        try:
            self._take_part(spec, injector, answer)
        except Leave:
            self.tell("down", **answer | {"outcome": "left"})
            atexit._run_exitfuncs()
            os._exit(0)
        except Injected as error:
            answer |= {"outcome": "raised", "error": str(error), "at": time.monotonic()}
        except WrongResult as wrong:
            answer |= {"outcome": "wrong", "error": str(wrong), "at": time.monotonic()}
        except Exception as error:
            injector.started()
            answer |= self._failed(error)
        self._end(injector, answer)
        answer["leaks"] = self._leaks(before)
        self.tell("down", **answer)

    def _go_to(self, network: str) -> None:
        if network or self.away:
            path.enter(network or self.home)
        self.away = bool(network)

    def _take_part(self, spec: dict, injector: Injector, answer: dict) -> None:
        size, rank = spec["size"], spec["rank"]
        process_sets = [hvd.ProcessSet(ranks) for ranks in spec["sets"]]
        injector.enter(INIT)
        hvd.init(process_sets=process_sets)
        injector.started()
        answer["where"] = "run"
        self.tell("up", ports=own_ports(system.descriptors()))
        sets = [list(range(size)), *spec["sets"]]
        workload = Workload(spec["seed"], rank, [hvd.global_process_set, *process_sets], sets, self.oracle)
        self.workload = workload
        slot = FIRST_PROGRESS + self.number

        def tick() -> None:
            self.shared[slot] += 1
            injector.operation()

        workload.tick = tick
        workload.run(lambda: self.shared[STOP_AT] >= spec["number"])

    def _failed(self, error: Exception) -> dict:
        answer = {
            "outcome": "error",
            "type": [kind.__name__ for kind in type(error).__mro__],
            "error": str(error)[:1500],
            "at": time.monotonic(),
        }
        traceback.print_exc()
        if self.workload is not None and isinstance(error, hvd.HorovodInternalError):
            try:
                self.workload.settle(named_rank(str(error)))
            except WrongResult as wrong:
                answer |= {"outcome": "wrong", "error": str(wrong)}
        return answer

    def _end(self, injector: Injector, answer: dict) -> None:
        if answer["outcome"] == "done":
            answer["at"] = time.monotonic()
        try:
            injector.enter(SHUTDOWN)
            hvd.shutdown()
        except Exception as error:
            traceback.print_exc()
            answer["shutdown_error"] = f"{type(error).__name__}: {error}"[:500]
        injector.end()
        try:
            if self.workload is not None:
                self.workload.after_shutdown()
        except WrongResult as wrong:
            answer |= {"outcome": "wrong", "error": str(wrong)}
        answer["shutdown_s"] = round(time.monotonic() - answer["at"], 3)
        answer["checked"] = self.workload.checked if self.workload is not None else 0
        answer["window"] = self.workload.window_number if self.workload is not None else 0

    @staticmethod
    def _leaks(before: system.Traces) -> list[str]:
        until = time.monotonic() + _TIDY_S
        while (leaks := system.Traces.look().more_than(before)) and time.monotonic() < until:
            gc.collect()
            time.sleep(0.01)
        return leaks


def named_rank(error: str) -> int | None:
    """
    Return the rank that an error's text blames: the first one that it names.

    >>> named_rank("Horovod has been shut down: rank 2 (host a, pid 7) died during allreduce of rank 1")
    2
    """
    found = re.search(r"\branks? (\d+)", error)
    return int(found.group(1)) if found else None


def start(number: int, shared: memoryview, log: str, oracle: Oracle) -> tuple[int, int, int]:
    """Fork a worker; return its process id, the pipe for its commands and the one with its events."""
    command_read, command_write = os.pipe()
    event_read, event_write = os.pipe()

    def main() -> None:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
        with open(command_read) as commands:
            Worker(number, commands, event_write, shared, oracle).serve()

    pid = system.fork(main, (command_read, event_write))
    os.close(command_read)
    os.close(event_write)
    return pid, command_write, event_read
