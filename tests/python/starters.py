# SPDX-License-Identifier: Apache-2.0
"""Starts programs by mpirun, srun and torchrun's variables, for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile

import launching
import pytest

OPEN_MPI = "openmpi"
MPICH = "mpich"
# Those of each MPI that Debian keeps apart from the other's.
_MPIRUN = {OPEN_MPI: "mpirun.openmpi", MPICH: "mpirun.mpich"}
# What outer launchers may have left in this process's environment.
_OF_LAUNCHERS = ("OMPI_", "PMI_", "PMIX_", "MPI_LOCAL", "SLURM_", "JSM_", "TORCHELASTIC_", "HYDI_")
_OF_TORCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

both_mpis = pytest.mark.parametrize("mpi", [OPEN_MPI, MPICH])


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which no launcher has started this process."""
    kept = {
        name: value
        for name, value in launching.clean_environment().items()
        if not name.startswith(_OF_LAUNCHERS) and name not in _OF_TORCH
    }
    return dict(kept, **more)


def mpirun_words(mpi: str, ranks: int) -> list[str]:
    """Return the words that start `ranks` processes, or skip the test where this MPI is not installed."""
    program = shutil.which(_MPIRUN[mpi])
    if program is None:
        pytest.skip(f"{_MPIRUN[mpi]} is not installed")
    words = [program, "-np", str(ranks)]
    if mpi == OPEN_MPI:
        # The usual line of Horovod's users, and what tests need: more ranks than cores, also as root.
        words += [
            "--oversubscribe",
            "-bind-to",
            "none",
            "-map-by",
            "slot",
            "-mca",
            "pml",
            "ob1",
            "-mca",
            "btl",
            "^openib",
        ]
        words += ["--allow-run-as-root"] if os.getuid() == 0 else []
    return words


def run(words: list[str], env: dict[str, str], timeout: float = 300) -> subprocess.CompletedProcess:
    """Run a command to its end. What launchers leave in TMPDIR goes with it."""
    with tempfile.TemporaryDirectory(prefix="hvd-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        return launching.run(words, dict(env, TMPDIR=folder), timeout)


def mpirun(mpi: str, ranks: int, *command: str, **variables: str) -> subprocess.CompletedProcess:
    """Run a command of Python on ranks that mpirun starts."""
    return run([*mpirun_words(mpi, ranks), sys.executable, *command], environment(**variables))


def by_variables(
    ranks: int, *command: str, each: dict[str, str] | None = None, env: dict[str, str] | None = None
) -> list[subprocess.CompletedProcess]:
    """Run a command of Python as ranks that only variables tell; `{rank}` and `{ranks}` in `each` are filled in."""
    with tempfile.TemporaryDirectory(prefix="hvd-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        processes = []
        for rank in range(ranks):
            own = {name: value.format(rank=rank, ranks=ranks) for name, value in (each or {}).items()}
            processes.append(
                subprocess.Popen(
                    [sys.executable, *command],
                    env=environment(**(env or {}), **own, TMPDIR=folder),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        results = []
        for process in processes:
            out, err = process.communicate(timeout=120)
            results.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
        return results
