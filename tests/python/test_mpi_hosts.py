# SPDX-License-Identifier: Apache-2.0
"""mpirun over two hosts with differently named interfaces: MPI introduces the ranks and carries the token."""

from __future__ import annotations

import sys

import hosts
import pytest
import starters
from test_mpi import PROGRAM, ranks_said

pytestmark = pytest.mark.skipif(bool(hosts.why_not()), reason=hosts.why_not())
# All of these hosts have the machine's name, by which Open MPI would name files in shared memory and MPICH look for
# itself.
MORE = {
    starters.OPEN_MPI: ["-H", "a:2,b:2", "-x", "PATH", "-x", "HOROVOD_LOG_LEVEL", "-mca", "btl", "tcp,self"],
    starters.MPICH: ["-hosts", "a:2,b:2", "-localhost", "a"],
}


@pytest.mark.parametrize(
    ("mpi", "family", "operations"),
    [(starters.OPEN_MPI, 4, "mpi"), (starters.OPEN_MPI, 6, "gloo"), (starters.MPICH, 4, "gloo")],
)
def test_four_ranks_on_two_hosts(mpi, family, operations, tmp_path):
    """Memory is shared within the hosts, and not between them. (MPICH's mpirun knows no IPv6.)"""
    words = starters.mpirun_words(mpi, 4)
    if mpi == starters.OPEN_MPI:
        words = [*words[: words.index("-mca")], "--allow-run-as-root", "-x", "HOROVOD_CPU_OPERATIONS"]
    with hosts.network(tmp_path, {"a": "eth7", "b": "ens9"}, family) as net:
        env = net.environment(HOROVOD_LOG_LEVEL="info", HOROVOD_CPU_OPERATIONS=operations)
        command = net["a"].command(*words, *MORE[mpi], sys.executable, PROGRAM)
        result = starters.run(command, {**env, **starters.environment(**env)})
    assert result.returncode == 0, result.stdout + result.stderr
    said = [f"rank {rank} of 4 local {rank % 2} of 2 mpi True" for rank in range(4)]
    assert ranks_said(result.stdout) == said, result.stdout
    assert result.stdout.count("2 ranks of this host by shared memory, 2 others by TCP") == 8, result.stdout


def test_a_rank_that_fails_elsewhere_ends_the_job(tmp_path):
    """Also with MPICH, whose mpirun leaves those who wait in MPI_Finalize alone."""
    program = "import horovod.numpy as hvd; hvd.init(); last = hvd.rank() == 3; hvd.shutdown(); exit(3 if last else 0)"
    with hosts.network(tmp_path, {"a": "eth7", "b": "ens9"}) as net:
        words = [*starters.mpirun_words(starters.MPICH, 4), *MORE[starters.MPICH], sys.executable, "-c", program]
        result = starters.run(net["a"].command(*words), net.environment())
    assert result.returncode == 3, result.stdout + result.stderr
