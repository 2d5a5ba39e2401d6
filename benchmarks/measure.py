# SPDX-License-Identifier: Apache-2.0
"""Running contenders side by side, and knowing how quiet the machine was meanwhile."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

from contenders import Contender, Unavailable, build

TICKS = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def busy_seconds() -> float:
    """CPU time spent by all processes of this machine since boot."""
    with open("/proc/stat") as stat:
        user, nice, system, _, _, irq, softirq = map(int, stat.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS


def children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(command: list[str], env: dict[str, str] | None = None, timeout: float = 120) -> tuple[str, float]:
    """Stdout, and the share of all cores that other processes used meanwhile. RuntimeError: the command failed."""
    busy, own, start = busy_seconds(), children_seconds(), time.monotonic()
    process = subprocess.Popen(
        command,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that all its processes can be ended together
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise RuntimeError(f"took longer than {timeout:.0f} s") from None
    elapsed = time.monotonic() - start
    if process.returncode != 0:
        raise RuntimeError(f"status {process.returncode}: {stderr.strip()[:600]}")
    foreign = busy_seconds() - busy - (children_seconds() - own)
    return stdout, max(0.0, foreign) / (elapsed * CORES)


@dataclass
class Launch:
    """One start of one contender."""

    repetition: int
    medians: dict[int, float]  # microseconds by size
    foreign: float


@dataclass
class Comparison:
    """All launches of all contenders, repetition by repetition."""

    launches: dict[str, list[Launch]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    line_latency_ns: list[float] = field(default_factory=list)

    def times(self, name: str, size: int) -> list[float]:
        return [launch.medians[size] for launch in self.launches.get(name, []) if size in launch.medians]

    def ratios(self, over: str, under: str, size: int) -> list[float]:
        """time(over) / time(under), each from the same repetition: what the machine does to one it does to both."""
        below = {launch.repetition: launch.medians for launch in self.launches.get(under, [])}
        return [
            launch.medians[size] / below[launch.repetition][size]
            for launch in self.launches.get(over, [])
            if size in launch.medians and size in below.get(launch.repetition, {})
        ]


def probe_latency(result: Comparison) -> None:
    """Nanoseconds that a cache line takes from core to core; differs when a hypervisor moves the cores."""
    if len(os.sched_getaffinity(0)) < 2:
        return
    try:
        stdout, _ = run([str(build("lat", "lat.cc", "g++"))], {"WINDOWS": "20"})
        result.line_latency_ns.append(float(stdout.split(",")[1]))
    except (RuntimeError, Unavailable) as reason:
        say(f"no latency probe: {reason}")


def launch(contender: Contender, repetition: int, max_foreign: float, retries: int) -> Launch:
    """The quietest of at most 1 + retries starts."""
    best: Launch | None = None
    for _ in range(1 + retries):
        stdout, foreign = run(contender.command, contender.env)
        if best is None or foreign < best.foreign:
            best = Launch(repetition, contender.medians(stdout), foreign)
        if foreign <= max_foreign:
            break
    assert best is not None
    return best


def compare(contenders: list[Contender], repetitions: int, seconds: float, max_foreign: float) -> Comparison:
    """Starts every contender once per repetition, in reversed order every other time, for at most about `seconds`."""
    result = Comparison(launches={contender.name: [] for contender in contenders})
    start = time.monotonic()
    for repetition in range(repetitions):
        elapsed = time.monotonic() - start
        if repetition >= 2 and elapsed * (repetition + 1) / repetition > seconds:
            say(f"stopping after {repetition} repetitions: {seconds:.0f} s are used up")
            break
        # A noisy launch is repeated only out of time that the planned repetitions have saved.
        retries = 1 if elapsed < 0.6 * seconds * repetition / repetitions else 0
        probe_latency(result)
        for contender in contenders[:: 1 if repetition % 2 == 0 else -1]:
            if contender.name in result.failures:
                continue
            try:
                one = launch(contender, repetition, max_foreign, retries)
            except (RuntimeError, ValueError, KeyError) as reason:
                result.failures[contender.name] = str(reason)
                say(f"{contender.name}: {reason}")
                continue
            result.launches[contender.name].append(one)
            note = f", {one.foreign:.0%} of the machine was busy with other work" if one.foreign > max_foreign else ""
            say(f"repetition {repetition + 1}/{repetitions}: {contender.name}{note}")
    probe_latency(result)
    return result
