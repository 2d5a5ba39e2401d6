#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures allreduce between hosts beside Open MPI and beside what the network could carry.

Hosts are network namespaces of this machine, whose links are limited to 1 or 10 Gbit/s or not at all; needs root. Both
run in the same minutes, in alternating order. The table of docs/operate/benchmarks.md between the hosts markers can be
brought up to date with --markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import page
import report
from arguments import count
from bars import Bar, size_name
from contenders import HVD_PERF, KIB, MIB, OPEN_MPI, ROOT, Unavailable, build, first_of
from measure import busy_seconds, children_seconds, say
from namespaces import GOODPUT, Network, network

GBIT = 10**9
CORES = os.cpu_count() or 1
LARGE = [4 * MIB, 16 * MIB, 64 * MIB]


@dataclass
class Case:
    """A network, and how many ranks each of its hosts has."""

    rate: int | None
    ranks: list[int]
    sizes: list[int]
    promised: float  # share of the bound from 4 MiB on; without a rate: times as fast as Open MPI, from 1 MiB on
    goal: str
    times: dict[str, dict[int, list[float]]] = field(default_factory=dict)  # ours and theirs, us, by size
    failures: dict[str, str] = field(default_factory=dict)
    foreign: list[float] = field(default_factory=list)  # share of the cores that others used, by launch

    @property
    def layout(self) -> str:
        if len(set(self.ranks)) == 1:
            return f"{len(self.ranks)} x {self.ranks[0]}"
        return " + ".join(map(str, self.ranks))

    @property
    def network(self) -> str:
        return f"{self.rate // GBIT} Gbit/s" if self.rate else "unlimited"

    def bound(self, size: int) -> float | None:
        """Microseconds in which the links can carry it: 2 (h-1)/h of the data, once per host."""
        if not self.rate:
            return None
        hosts = len(self.ranks)
        return 2 * (hosts - 1) / hosts * size / (self.rate / 8 * GOODPUT) * 1e6


def all_cases() -> list[Case]:
    return [
        Case(None, [1, 1], [4, KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB], 1.3, "G8"),
        Case(10 * GBIT, [1, 1], LARGE, 0.90, "G10"),
        Case(GBIT, [1, 1], LARGE, 0.98, "G9"),
        Case(GBIT, [1, 1, 1, 1], LARGE, 0.98, "G9"),
        Case(GBIT, [2, 2], LARGE, 0.95, "G11"),
        Case(GBIT, [4, 4], LARGE, 0.90, "G11"),
        Case(GBIT, [2, 1], LARGE, 0.90, "G11"),
    ]


def end(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def start(command: list[str], env: dict[str, str]) -> subprocess.Popen:
    """In a group of its own, so that all its processes can be ended together."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env={**os.environ, **env}, text=True, process_group=0, **pipes)


def finish(processes: list[subprocess.Popen], limit: float) -> str:
    """Wait for all; return what the first printed. RuntimeError: one failed."""
    try:
        texts = [process.communicate(timeout=limit) for process in processes]
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"took longer than {limit:.0f} s") from None
    for process, (_, stderr) in zip(processes, texts):
        if process.returncode != 0:
            raise RuntimeError(f"status {process.returncode}: {stderr.strip()[:300]}")
    return texts[0][0]


def pinned(rank: int) -> list[str]:
    # Two ranks that wake each other would be put on one core; the hosts do not know that they share the machine.
    return ["taskset", "-c", str(rank % CORES)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def ours(case: Case, net: Network, limit: float) -> dict[int, float]:
    """Median of each size by hvd_perf, in microseconds."""
    places = [host for host, ranks in enumerate(case.ranks) for _ in range(ranks)]
    words = ["--no-fork", "--no-pin", "--sizes", ",".join(map(str, case.sizes)), "--json", "-"]
    if case.rate:
        words += ["--iters", "5", "--warmup", "1"]
    port = free_port()
    processes = []
    try:
        for rank, host in enumerate(places):
            env = {
                "HOROVOD_RANK": str(rank),
                "HOROVOD_SIZE": str(len(places)),
                "HOROVOD_RENDEZVOUS_ADDR": f"{net.addresses[0]}:{port}",
                "HOROVOD_INSECURE": "1",
                "HOROVOD_LOG_LEVEL": "error",
            }
            processes.append(start(net.inside(host, *pinned(rank), HVD_PERF, *words), env))
        return {row["bytes"]: row["median_us"] for row in json.loads(finish(processes, limit))["rows"]}
    finally:
        end(processes)


def theirs(case: Case, net: Network, limit: float) -> dict[int, float]:
    """Median of each size by Open MPI."""
    runner = first_of(["mpirun.openmpi", "mpirun"], r"Open MPI|OpenRTE")
    program = build("mpi_openmpi", "mpi_bench.cc", runner.replace("mpirun", "mpicxx"))
    ranks = sum(case.ranks)
    mca = {
        "plm_rsh_agent": str(net.folder / "agent"),
        "btl": "tcp,vader,self",
        "pml": "ob1",
        "btl_tcp_if_include": "10.79.0.0/24",
        "oob_tcp_if_include": "10.79.0.0/24",
        "mpi_yield_when_idle": str(int(ranks > CORES)),
    }
    env = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "NP": str(ranks),
        "FRESH": "1",
        "SIZES": ",".join(map(str, case.sizes)),
        "SLOW": "1" if case.rate else "0",
    }
    hosts = ",".join(f"{name}:{count}" for name, count in zip(net.names, case.ranks))
    words = [runner, "-np", str(ranks), "-host", hosts, "--bind-to", "none"]
    words += [word for key, value in mca.items() for word in ("--mca", key, value)]
    words += [word for key in ("NP", "FRESH", "SIZES", "SLOW") for word in ("-x", key)]
    # Each process finds its core by its number in the job.
    core = f"exec taskset -c $((OMPI_COMM_WORLD_RANK % {CORES})) {program}"
    named = f'hostname {net.names[0]}; exec "$@"'
    command = net.inside(0, "unshare", "--uts", "sh", "-c", named, "sh", *words, "sh", "-c", core)
    process = start(command, env)
    try:
        out = finish([process], limit)
    finally:
        end([process])
    rows = [line.split(",") for line in out.splitlines() if line.startswith("allreduce,")]
    return {int(row[2]): float(row[5]) for row in rows if int(row[2]) in case.sizes}


def measure(case: Case, repetitions: int, limit: float) -> None:
    contenders = {"hvd": ours, OPEN_MPI: theirs}
    with network(len(case.ranks), case.rate) as net:
        for repetition in range(repetitions):
            for name in contenders if repetition % 2 == 0 else reversed(contenders):
                if name in case.failures:
                    continue
                busy, own, begin = busy_seconds(), children_seconds(), time.monotonic()
                try:
                    medians = contenders[name](case, net, limit)
                except (RuntimeError, Unavailable, OSError) as reason:
                    case.failures[name] = str(reason)
                    say(f"{case.network}, {case.layout}: {name}: {reason}")
                    continue
                others = busy_seconds() - busy - (children_seconds() - own)
                case.foreign.append(max(0.0, others) / (CORES * (time.monotonic() - begin)))
                for size, median in medians.items():
                    case.times.setdefault(name, {}).setdefault(size, []).append(median)


def bar(case: Case, size: int) -> Bar | None:
    """What is promised for this size, if anything, with one value per repetition."""
    mine, others = (case.times.get(name, {}).get(size, []) for name in ("hvd", OPEN_MPI))

    def made(what: str, limit: float, at_most: bool, unit: str, values: list[float]) -> Bar:
        group = f"{case.network}, {case.layout}: {what}"
        text = f"{case.goal} {case.network}, {case.layout}, {size_name(size)}: {what}"
        return Bar(text, limit, at_most, unit, values, goal=case.goal, group=group, at=size_name(size))

    if case.rate:
        shares = [100 * case.bound(size) / us for us in mine]
        return made("share of the bound", 100 * case.promised, False, "%", shares) if size >= 4 * MIB else None
    if size >= MIB:
        return made("speed / Open MPI", case.promised, False, "x", [their / us for us, their in zip(mine, others)])
    return made("time / Open MPI", 1, True, "x", [us / t for us, t in zip(mine, others)]) if size <= KIB else None


def verdict(promise: Bar | None) -> tuple[str, str]:
    """What is promised, and whether it holds."""
    if promise is None:
        return "", ""
    return f"{promise.group.split(': ')[1]} {report.promised(promise)}", report.verdict(promise)


def number(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def milliseconds(times: list[float]) -> str:
    middle, least, most = (number(one / 1000) for one in (statistics.median(times), min(times), max(times)))
    return f"{middle} ({least} .. {most})"


def table(cases: list[Case]) -> str:
    lines = [
        "| links | hosts x ranks | size | hvd, ms: median (min .. max) | bound, ms | of the bound | Open MPI, ms "
        "| times as fast | promised | |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|---|",
    ]
    for case in cases:
        for size in case.sizes:
            mine = case.times.get("hvd", {}).get(size)
            if not mine:
                continue
            other = case.times.get(OPEN_MPI, {}).get(size)
            bound = case.bound(size)
            share = bound / statistics.median(mine) if bound else None
            ratio = statistics.median(other) / statistics.median(mine) if other else None
            cells = [
                *(case.network, case.layout, size_name(size), milliseconds(mine)),
                number(bound / 1000) if bound else "",
                f"{share:.1%}" if share else "",
                milliseconds(other) if other else "-",
                f"{ratio:.2f}" if ratio else "-",
                *verdict(bar(case, size)),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def why_not() -> str:
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in ("ip", "tc", "unshare", "taskset") if not shutil.which(program)]
    if missing:
        return f"not installed: {', '.join(missing)}"
    return "" if HVD_PERF.exists() else f"{HVD_PERF} does not exist; run `make setup` first"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=count, default=3)
    parser.add_argument("--limit", type=float, default=120, help="seconds that one launch may take")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "hosts.json")
    parser.add_argument("--markdown", type=Path, help="a page whose table is brought up to date")
    return parser.parse_args()


def main() -> int:
    options = parse()
    if reason := why_not():
        sys.exit(f"no hosts can be made here: {reason}")
    cases = all_cases()
    for case in cases:
        say(f"{case.network}, {case.layout}")
        measure(case, options.repetitions, options.limit)
    context = report.context([], " ".join(["benchmarks/hosts.py", *map(shlex.quote, sys.argv[1:])]))
    foreign = [share for case in cases for share in case.foreign]
    noise = "Nothing was measured."
    if foreign:
        middle, most = statistics.median(foreign), max(foreign)
        noise = f"Other work used {middle:.0%} of the cores meanwhile (median of all launches; at most {most:.0%})."
    text = f"{table(cases)}\n\n{report.origin(context)} {noise}"
    print(text)
    bars = [one for case in cases for size in case.sizes if (one := bar(case, size))]
    rows = [{"links": c.network, "layout": c.layout, "us": c.times, "failures": c.failures} for c in cases]
    report.write_json(options.json, context, bars, cases=rows)
    if options.markdown:
        page.put(options.markdown, "hosts", text)
    return 1 if any("hvd" in case.failures for case in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
