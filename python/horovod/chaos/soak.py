# SPDX-License-Identifier: Apache-2.0
"""
One job without faults, for long: whether memory, descriptors, threads or times grow.

Each rank runs the operations of `workload`, and after each window a few that are always the same and are timed. What
happens at the start (buffers that fill up, plans that are made) is no growth: the first fifth does not count.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict
from typing import Callable, TextIO

import numpy as np

import horovod.numpy as hvd
from horovod.chaos import system
from horovod.chaos.operations import Oracle
from horovod.chaos.runner import free_port
from horovod.chaos.soak_report import Sample, Soak, percentile
from horovod.chaos.workload import Workload, WrongResult

_WARM_UP = 0.2
_SAMPLES = 60
# For a machine that has other things to do, to start and to end.
_GRACE_S = 120.0


class Probes:
    """Operations that are always the same, and how long each took."""

    def __init__(self, size: int) -> None:
        small, large = np.ones(1 << 10, np.float32), np.ones(1 << 18, np.float32)
        rows = np.ones((size * 4, 1 << 10), np.float32)
        self.size = size
        self.calls: dict[str, Callable[[], np.ndarray | None]] = {
            "allreduce 4 KiB": lambda: hvd.allreduce(small, op=hvd.Sum, name="probe.small"),
            "allreduce 1 MiB": lambda: hvd.allreduce(large, op=hvd.Sum, name="probe.large"),
            "allgather": lambda: hvd.allgather(small, name="probe.gather") * size,
            "broadcast": lambda: hvd.broadcast(large, 0, name="probe.broadcast") * size,
            "alltoall": lambda: hvd.alltoall(rows, name="probe.alltoall") * size,
            "reducescatter": lambda: hvd.reducescatter(rows, op=hvd.Sum, name="probe.scatter"),
            "grouped_allreduce": lambda: hvd.grouped_allreduce([small] * 4, op=hvd.Sum, name="probe.group")[3],
            "barrier": lambda: hvd.barrier(),
        }
        self.times: dict[str, list[float]] = defaultdict(list)

    def run(self) -> None:
        """Run each of them once."""
        for kind, call in self.calls.items():
            hvd.barrier()  # so that it is not the wait for a slower rank that is timed
            begin = time.perf_counter()
            result = call()
            self.times[kind].append(time.perf_counter() - begin)
            if result is not None and not (result == self.size).all():
                raise WrongResult(f"{kind} gave something else than {self.size}")

    def take(self, percent: int) -> dict[str, float]:
        """Return a percentile of all that was timed."""
        return {kind: percentile(times, percent) for kind, times in self.times.items()}


def _rank(rank: int, size: int, seconds: float, seed: int, out: TextIO) -> None:
    process_sets = [hvd.ProcessSet([0]), hvd.ProcessSet(range(1, size))]
    hvd.init(process_sets=process_sets)
    sets = [list(range(size)), *(list(one.ranks or ()) for one in process_sets)]
    workload = Workload(f"soak {seed}", rank, [hvd.global_process_set, *process_sets], sets, Oracle())
    begin = time.monotonic()
    for number in range(1, _SAMPLES + 1):
        probes = Probes(size)
        over = False
        while not over:
            workload.window()
            probes.run()
            workload.check_kept()
            over = workload.any(time.monotonic() - begin >= seconds * number / _SAMPLES)
        private, shared = system.resident_bytes()
        sample = Sample(
            private=private,
            shared=shared,
            descriptors=len(system.descriptors()),
            threads=system.thread_count(),
            checked=workload.checked,
            p50=probes.take(50),
            p99=probes.take(99),
        )
        print(json.dumps(asdict(sample)), file=out, flush=True)
    hvd.shutdown()


def run(seconds: float, size: int, seed: int, transport: str) -> Soak:
    """Run one job for so long."""
    begin, busy = time.monotonic(), _used_by_others()
    address = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="horovod-soak-") as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        pids = []
        for rank in range(size):
            env = {
                "HOROVOD_RANK": str(rank),
                "HOROVOD_SIZE": str(size),
                "HOROVOD_RENDEZVOUS_ADDR": address,
                "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
                "HOROVOD_DISABLE_SHM": str(int(transport == "tcp")),
                "HOROVOD_INSECURE": "1",
                "HOROVOD_HEARTBEAT_TIMEOUT_SECONDS": "60",
            }
            if transport == "hosts":
                env["HOROVOD_HOSTNAME"] = f"host{rank * 2 // size}"

            def main(rank: int = rank, env: dict[str, str] = env) -> None:
                os.environ.update(env)
                with open(folder / f"rank{rank}", "w") as out:
                    _rank(rank, size, seconds, seed, out)

            pids.append(system.fork(main, ()))
            stack.callback(_end, pids[-1])
        errors = _wait(pids, begin + seconds + _GRACE_S)
        lines = [(folder / f"rank{rank}").read_text().splitlines() for rank in range(size)]
    samples = [[Sample(**json.loads(line)) for line in one][int(_SAMPLES * _WARM_UP) :] for one in lines]
    elapsed = time.monotonic() - begin
    return Soak(elapsed, transport, samples, errors, max(0.0, _used_by_others() - busy) / elapsed)


def _used_by_others() -> float:
    """Return the processor seconds since boot of all but this process and the children that it has waited for."""
    with open("/proc/stat") as stat:
        user, nice, system_time, _, _, interrupts, soft_interrupts = map(int, stat.readline().split()[1:8])
    own = sum(os.times()[:4])
    return (user + nice + system_time + interrupts + soft_interrupts) / os.sysconf("SC_CLK_TCK") - own


def _wait(pids: list[int], deadline: float) -> list[str]:
    errors = []
    for rank, pid in enumerate(pids):
        descriptor = os.pidfd_open(pid)
        if not select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))[0]:
            errors.append(f"rank {rank} did not end")
            os.kill(pid, signal.SIGKILL)
        os.close(descriptor)
        # Its end stays to be seen by _end.
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        if ended and (ended.si_code, ended.si_status) != (os.CLD_EXITED, 0):
            errors.append(f"rank {rank} ended with status {ended.si_status}; what it printed says why")
    return errors


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
