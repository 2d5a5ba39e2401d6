# SPDX-License-Identifier: Apache-2.0
"""Running contenders side by side, and knowing how quiet the machine was meanwhile."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from contenders import Contender, Unavailable, build
from scenarios import Scenario

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


def rounds(most: int, seconds: float) -> Iterator[int]:
    """Their numbers: at most so many, and none is begun that would not end in time; the first is always done."""
    begin, longest = time.monotonic(), 0.0
    for number in range(most):
        start = time.monotonic()
        if number > 0 and start - begin + longest > seconds:
            say(f"{number} of {most} launches: there was no time for more")
            return
        yield number
        longest = max(longest, time.monotonic() - start)


@dataclass
class Launch:
    """One start of one contender."""

    repetition: int
    medians: dict[int, float]  # microseconds by size
    foreign: float


@dataclass
class Window:
    """The minute in which a scenario's contenders ran once each: nanoseconds of a cache line from core to core."""

    scenario: str
    repetition: int
    before_ns: float | None
    after_ns: float | None

    @property
    def steady(self) -> bool:
        """Whether the cores stayed as near to each other as they were; a hypervisor may move them."""
        if not self.before_ns or not self.after_ns:
            return True
        return 0.5 <= self.before_ns / self.after_ns <= 2


@dataclass
class Comparison:
    """All launches of one scenario, repetition by repetition."""

    scenario: Scenario
    launches: dict[str, list[Launch]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)

    def times(self, name: str, size: int) -> list[float]:
        return [launch.medians[size] for launch in self.launches.get(name, []) if size in launch.medians]

    def by_repetition(self, name: str, size: int) -> dict[int, float]:
        launches = self.launches.get(name, [])
        return {launch.repetition: launch.medians[size] for launch in launches if size in launch.medians}

    def ratios(self, over: str, under: str | tuple[str, ...], size: int, under_size: int | None = None) -> list[float]:
        """
        time(over) / time(under), each from the same repetition: what the machine does to one it does to both.

        Of several names under the line, the fastest counts. Repetitions in which the cores moved are left out if three
        others remain.
        """
        names = (under,) if isinstance(under, str) else under
        below = [self.by_repetition(name, under_size or size) for name in names]
        found = {}
        for repetition, us in self.by_repetition(over, size).items():
            peers = [times[repetition] for times in below if repetition in times]
            if peers:
                found[repetition] = us / min(peers)
        moved = {window.repetition for window in self.windows if not window.steady}
        calm = [ratio for repetition, ratio in found.items() if repetition not in moved]
        return calm if len(calm) >= 3 else list(found.values())


def probe_latency() -> float | None:
    """Nanoseconds that a cache line takes from core to core; differs when a hypervisor moves the cores."""
    if len(os.sched_getaffinity(0)) < 2:
        return None
    try:
        stdout, _ = run([str(build("lat", "lat.cc", "g++"))], {"WINDOWS": "10"})
        return float(stdout.split(",")[1])
    except (RuntimeError, Unavailable) as reason:
        say(f"no latency probe: {reason}")
        return None


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


def visit(result: Comparison, repetition: int, max_foreign: float, retries: int) -> None:
    """Starts each of a scenario's contenders once, in reversed order every other time."""
    before = probe_latency()
    for contender in result.scenario.contenders[:: 1 if repetition % 2 == 0 else -1]:
        if contender.name in result.failures:
            continue
        try:
            one = launch(contender, repetition, max_foreign, retries)
        except (RuntimeError, ValueError, KeyError) as reason:
            result.failures[contender.name] = str(reason)
            say(f"{result.scenario.name}: {contender.name}: {reason}")
            continue
        result.launches[contender.name].append(one)
        if one.foreign > max_foreign:
            say(f"{contender.name}: {one.foreign:.0%} of the machine was busy with other work")
    result.windows.append(Window(result.scenario.name, repetition, before, probe_latency()))


def compare(
    scenarios: list[Scenario], repetitions: int, seconds: float, max_foreign: float, least: int = 3
) -> list[Comparison]:
    """Visits every scenario once per repetition, for at most about `seconds` but `least` repetitions."""
    results = [Comparison(one, {contender.name: [] for contender in one.contenders}) for one in scenarios]
    start = time.monotonic()
    for repetition in range(repetitions):
        elapsed = time.monotonic() - start
        if repetition >= least and elapsed * (repetition + 1) / repetition > seconds:
            say(f"stopping after {repetition} repetitions: {seconds:.0f} s are used up")
            break
        # A noisy launch is repeated only out of time that the planned repetitions have saved.
        retries = 1 if elapsed < 0.6 * seconds * repetition / repetitions else 0
        for result in results:
            say(f"repetition {repetition + 1}/{repetitions}: {result.scenario.name}")
            visit(result, repetition, max_foreign, retries)
    return results
