# SPDX-License-Identifier: Apache-2.0
"""The same program started by srun, plain and with each way in which srun introduces ranks to each other."""

from __future__ import annotations

import sys

import pytest
import slurm
import starters
from test_mpi import PROGRAM, ranks_said


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A Slurm of one node."""
    with slurm.cluster(tmp_path_factory.mktemp("slurm")) as env:
        yield env


def srun(cluster: dict[str, str], *words: str, **variables: str):
    """Run the program on two ranks."""
    env = starters.environment(**cluster, **variables, HOROVOD_LOG_LEVEL="info")
    result = starters.run(["srun", "-n", "2", "--overcommit", *words], env)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


@pytest.mark.parametrize(
    ("flag", "how"), [("none", "at a local socket"), ("pmi2", "introduced by PMI"), ("pmix", "introduced by PMIx")]
)
def test_srun(cluster, flag, how):
    """Whatever --mpi says, and without: two ranks."""
    result = srun(cluster, f"--mpi={flag}", sys.executable, PROGRAM)
    assert ranks_said(result.stdout) == ["rank 0 of 2 local 0 of 2 mpi False", "rank 1 of 2 local 1 of 2 mpi False"]
    assert sum(f"by srun (SLURM_PROCID), {how}" in line for line in result.stdout.splitlines()) == 4, result.stdout


def test_two_steps_at_once_do_not_meet(cluster):
    """Each step of an allocation is a job of its own."""
    both = f"for i in 1 2; do srun --overlap --overcommit -n 2 {sys.executable} {PROGRAM} & done; wait"
    env = starters.environment(**cluster)
    result = starters.run(["salloc", "-n", "2", "-Q", "bash", "-c", both], env)
    assert len(ranks_said(result.stdout)) == 4, result.stdout + result.stderr


def test_what_is_no_step_is_alone(cluster):
    """A program in the shell of salloc is one process, however many tasks were asked for."""
    env = starters.environment(**cluster)
    result = starters.run(["salloc", "-n", "2", "-Q", sys.executable, PROGRAM], env)
    assert ranks_said(result.stdout) == ["rank 0 of 1 local 0 of 1 mpi False"], result.stdout + result.stderr


def test_mpi_under_srun(cluster):
    """HOROVOD_CONTROLLER=mpi: Open MPI over PMIx brings the ranks together and carries the operations."""
    more = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
    result = srun(cluster, "--mpi=pmix", sys.executable, PROGRAM, **more)
    assert ranks_said(result.stdout) == ["rank 0 of 2 local 0 of 2 mpi True", "rank 1 of 2 local 1 of 2 mpi True"]
