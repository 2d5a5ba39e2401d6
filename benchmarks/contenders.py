# SPDX-License-Identifier: Apache-2.0
"""Who can be measured: hvd_perf, the installed peers and the floor programs; how each is built and started."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "benchmarks" / "peers"
PROGRAMS = ROOT / "build" / "peers"
HVD_PERF = ROOT / "build" / "release" / "tools" / "hvd_perf"

KIB, MIB = 1 << 10, 1 << 20

HVD_ARENA = "hvd, arena buffers"
HVD_PRIVATE = "hvd, private buffers"
HVD_MIXED = "hvd, private in, arena out"
HVD_STEP = "hvd, 161 cached operations"
HVD_NUMPY = "hvd from NumPy, above a ctypes call that does nothing"
OPEN_MPI = "Open MPI"
OPEN_MPI_TUNED = "Open MPI, segmented ring"
MPICH = "MPICH"
GLOO = "Gloo"
FLOOR_DIRECT = "floor: direct"
FLOOR_STAGED = "floor: staged"
FLOOR_SLOTS = "floor: slots"
MEMORY_LIMIT = "memory limit"

# Tensors of ResNet-50: what one step submits.
STEP_TENSORS = 161


class Unavailable(Exception):
    """A contender that cannot run here, and why."""


@dataclass
class Contender:
    """A command that measures one operation at several sizes, and how to read what it prints."""

    name: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    version: str = ""
    row: str = "allreduce"  # how its lines of CSV begin
    minus: str = ""  # the row that is taken off, if any
    scale: float = 1  # figures are so many of what it prints

    def medians(self, stdout: str) -> dict[int, float]:
        """Microseconds by size."""
        if stdout.lstrip().startswith("{"):
            found = {row["bytes"]: row["median_us"] for row in json.loads(stdout)["rows"]}
        else:
            found = csv_medians(stdout, self.row)
            less = csv_medians(stdout, self.minus) if self.minus else {}
            found = {size: us - less.get(size, 0) for size, us in found.items()}
        return {size: us * self.scale for size, us in found.items()}


def csv_medians(stdout: str, row: str) -> dict[int, float]:
    """Of lines as the programs of peers/ print them: row,ranks,bytes,iterations,min,median,90th percentile."""
    lines = [line.split(",") for line in stdout.splitlines()]
    return {int(line[2]): float(line[5]) for line in lines if line[0] == row and len(line) == 7}


def compiler_flags() -> list[str]:
    flags = ["-std=c++20", "-O3", "-march=native", "-pthread"]
    if platform.machine() == "x86_64":
        flags.append("-mprefer-vector-width=512")
    return flags


def build(program: str, source: str, compiler: str, libraries: tuple[str, ...] = ()) -> Path:
    """Compiles one program of peers/ unless it is newer than its sources."""
    output = PROGRAMS / program
    inputs = [SOURCES / source, SOURCES / "common.h"]
    if output.exists() and output.stat().st_mtime > max(path.stat().st_mtime for path in inputs):
        return output
    if shutil.which(compiler) is None:
        raise Unavailable(f"{compiler} is not installed")
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    command = [compiler, *compiler_flags(), str(SOURCES / source), "-o", str(output), *libraries]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-200:])
        raise Unavailable(f"{source} does not compile: {reason.strip()}")
    return output


def first_of(names: list[str], banner: str) -> str:
    """The first of these programs that is installed and prints `banner` for --version."""
    for name in names:
        if shutil.which(name) is None:
            continue
        done = subprocess.run([name, "--version"], capture_output=True, text=True)
        if re.search(banner, done.stdout + done.stderr):
            return name
    raise Unavailable(f"none of {', '.join(names)} is installed")


def version_of(command: list[str], pattern: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(pattern, done.stdout + done.stderr)
    return found.group(1) if found else ""


def cores() -> int:
    return len(os.sched_getaffinity(0))


def peer_environment(ranks: int, sizes: list[int], **more: str) -> dict[str, str]:
    return {"NP": str(ranks), "FRESH": "1", "SIZES": ",".join(map(str, sizes)), **more}


def open_mpi(ranks: int, sizes: list[int], op: str = "allreduce", segmented_ring: bool = False) -> Contender:
    runner = first_of(["mpirun.openmpi", "mpirun"], "Open MPI|OpenRTE")
    program = build("mpi_openmpi", "mpi_bench.cc", runner.replace("mpirun", "mpicxx"))
    settings = ["--bind-to", "core"]
    if ranks > cores():
        settings = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    if segmented_ring:
        for name, value in (
            ("coll_tuned_use_dynamic_rules", 1),
            ("coll_tuned_allreduce_algorithm", 5),
            ("coll_tuned_allreduce_algorithm_segmentsize", 256 * KIB),
        ):
            settings += ["--mca", name, str(value)]
    env = peer_environment(ranks, sizes, OPS=op, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    version = version_of([runner, "--version"], r"(\d+\.\d+\.\d+\S*)")
    name = OPEN_MPI_TUNED if segmented_ring else OPEN_MPI
    return Contender(name, [runner, "-np", str(ranks), *settings, str(program)], env, version, op)


def mpich(ranks: int, sizes: list[int]) -> Contender:
    runner = first_of(["mpirun.mpich", "mpirun"], "HYDRA")
    program = build("mpi_mpich", "mpi_bench.cc", runner.replace("mpirun", "mpicxx"))
    binding = [] if ranks > cores() else ["-bind-to", "core"]
    version = version_of([runner, "--version"], r"Version:\s*(\S+)")
    return Contender(
        MPICH, [runner, "-np", str(ranks), *binding, str(program)], peer_environment(ranks, sizes), version
    )


def gloo(ranks: int, sizes: list[int]) -> Contender:
    program = build("gloo_bench", "gloo_bench.cc", "g++", ("-lgloo",))
    version = version_of(["dpkg-query", "-W", "-f", "${Version}", "libgloo0"], r"(\S+)")
    # A quarter of the iterations: one of Gloo's takes as long as a hundred of the others'.
    return Contender(GLOO, [str(program)], peer_environment(ranks, sizes, SLOW="1"), version)


def floor(name: str, ranks: int, sizes: list[int]) -> Contender:
    mode = name.removeprefix("floor: ")
    program = build("shm_bench", "shm_bench.cc", "g++")
    return Contender(name, [str(program)], peer_environment(ranks, sizes, MODE=mode))


def memory_limit(sizes: list[int]) -> Contender:
    """The inner loop of an allreduce of two ranks without a copy, on data that both cores have just written."""
    if cores() < 2:
        raise Unavailable("it needs two cores")
    kernel = "sum_into_both_fresh"
    program = build("membw", "membw.cc", "g++")
    return Contender(MEMORY_LIMIT, [str(program)], peer_environment(2, sizes, KERNEL=kernel), row=kernel)


def hvd(name: str, program: Path, ranks: int, sizes: list[int], op: str = "allreduce") -> Contender:
    buffers = {HVD_ARENA: "arena", HVD_PRIVATE: "private", HVD_MIXED: "mixed"}[name]
    command = [str(program), "--op", op, "--dtype", "float32", "--fork", "--ranks", str(ranks), "--fresh"]
    command += ["--mode", "blocking", "--buffers", buffers, "--sizes", ",".join(map(str, sizes)), "--json", "-"]
    return Contender(name, command)


def hvd_step(program: Path) -> Contender:
    """A step whose tensors are all small and all known: what remains is the agreement and the hand-over."""
    command = [str(program), "--fork", "--ranks", "2", "--mode", "async", "--window", str(STEP_TENSORS)]
    command += ["--buffers", "private", "--sizes", "4", "--iters", "200", "--json", "-"]
    return Contender(HVD_STEP, command, scale=STEP_TENSORS)


def numpy_calls() -> Contender:
    """Calls from Python, two ranks."""
    horovodrun = Path(sys.executable).parent / "horovodrun"
    if not horovodrun.exists():
        raise Unavailable(f"{horovodrun} does not exist")
    script = ROOT / "benchmarks" / "numpy_calls.py"
    command = [str(horovodrun), "-np", "2", "--prefix", "", sys.executable, str(script)]
    return Contender(HVD_NUMPY, command, minus="ctypes")
