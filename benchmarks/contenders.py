# SPDX-License-Identifier: Apache-2.0
"""Who is measured: hvd_perf, the peers that are installed, and the floor programs; how each is built and started."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "benchmarks" / "peers"
PROGRAMS = ROOT / "build" / "peers"
HVD_PERF = ROOT / "build" / "release" / "tools" / "hvd_perf"

KIB, MIB = 1 << 10, 1 << 20
SIZES = [4, KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB]
LARGE_SIZES = [64 * MIB, 256 * MIB]

HVD_ARENA = "hvd, arena buffers"
HVD_PRIVATE = "hvd, private buffers"
OPEN_MPI = "Open MPI"
MPICH = "MPICH"
GLOO = "Gloo"
FLOOR_DIRECT = "floor: direct"
FLOOR_STAGED = "floor: staged"


class Unavailable(Exception):
    """A contender that cannot run here, and why."""


@dataclass
class Contender:
    """A command that measures allreduce at every size, and how to read what it prints."""

    name: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    version: str = ""

    def medians(self, stdout: str) -> dict[int, float]:
        """Microseconds by size."""
        if stdout.lstrip().startswith("{"):
            return {row["bytes"]: row["median_us"] for row in json.loads(stdout)["rows"]}
        rows = [line.split(",") for line in stdout.splitlines() if line.startswith("allreduce,")]
        return {int(row[2]): float(row[5]) for row in rows}


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


def crowded(ranks: int) -> bool:
    return ranks > len(os.sched_getaffinity(0))


def open_mpi(ranks: int) -> Contender:
    runner = first_of(["mpirun.openmpi", "mpirun"], "Open MPI|OpenRTE")
    program = build("mpi_openmpi", "mpi_bench.cc", runner.replace("mpirun", "mpicxx"))
    binding = ["--bind-to", "core"]
    if crowded(ranks):
        binding = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    version = version_of([runner, "--version"], r"(\d+\.\d+\.\d+\S*)")
    return Contender(OPEN_MPI, [runner, "-np", str(ranks), *binding, str(program)], env, version)


def mpich(ranks: int) -> Contender:
    runner = first_of(["mpirun.mpich", "mpirun"], "HYDRA")
    program = build("mpi_mpich", "mpi_bench.cc", runner.replace("mpirun", "mpicxx"))
    binding = [] if crowded(ranks) else ["-bind-to", "core"]
    version = version_of([runner, "--version"], r"Version:\s*(\S+)")
    return Contender(MPICH, [runner, "-np", str(ranks), *binding, str(program)], {}, version)


def gloo(ranks: int) -> Contender:
    program = build("gloo_bench", "gloo_bench.cc", "g++", ("-lgloo",))
    version = version_of(["dpkg-query", "-W", "-f", "${Version}", "libgloo0"], r"(\S+)")
    # A quarter of the iterations: one of Gloo's takes as long as a hundred of the others'.
    return Contender(GLOO, [str(program)], {"SLOW": "1"}, version)


def floor(name: str, mode: str) -> Contender:
    return Contender(name, [str(build("shm_bench", "shm_bench.cc", "g++"))], {"MODE": mode})


def hvd(name: str, buffers: str, ranks: int, sizes: list[int], program: Path) -> Contender:
    command = [str(program), "--op", "allreduce", "--dtype", "float32", "--ranks", str(ranks), "--fresh"]
    command += ["--mode", "blocking", "--buffers", buffers, "--sizes", ",".join(map(str, sizes)), "--json", "-"]
    return Contender(name, command)


def all_contenders(ranks: int, sizes: list[int], hvd_perf: Path) -> tuple[list[Contender], dict[str, str]]:
    """Those that can run here, and for the others the reason."""
    makers = {
        HVD_ARENA: lambda: hvd(HVD_ARENA, "arena", ranks, sizes, hvd_perf),
        OPEN_MPI: lambda: open_mpi(ranks),
        HVD_PRIVATE: lambda: hvd(HVD_PRIVATE, "private", ranks, sizes, hvd_perf),
        FLOOR_DIRECT: lambda: floor(FLOOR_DIRECT, "direct"),
        FLOOR_STAGED: lambda: floor(FLOOR_STAGED, "staged"),
        MPICH: lambda: mpich(ranks),
        GLOO: lambda: gloo(ranks),
    }
    found: list[Contender] = []
    missing: dict[str, str] = {}
    for name, make in makers.items():
        try:
            found.append(make())
        except Unavailable as reason:
            missing[name] = str(reason)
    for contender in found:
        contender.env.update(NP=str(ranks), FRESH="1", MINB=str(min(sizes)), MAXB=str(max(sizes)))
    return found, missing
