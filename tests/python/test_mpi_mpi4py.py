# SPDX-License-Identifier: Apache-2.0
"""mpi4py in the same program: its communicators are jobs, whoever initialised MPI first."""

from __future__ import annotations

import pathlib

import pytest
import starters
from test_mpi import find_library

pytest.importorskip("mpi4py")
PROGRAM = str(pathlib.Path(__file__).with_name("mpi4py_beside.py"))


@pytest.mark.parametrize(("operations", "order"), [("gloo", "mpi4py first"), ("mpi", "horovod first")])
@starters.both_mpis
def test_both_in_one_program(mpi, operations, order, tmp_path):
    """Three ranks, two jobs of parts of them, then one of all."""
    env = {"HOROVOD_CPU_OPERATIONS": operations, "MPI4PY_MPIABI": mpi}
    if mpi == starters.MPICH:
        # mpi4py knows MPICH's library by the name of the common ABI, which Debian does not give it.
        (tmp_path / "libmpi.so.12").symlink_to(find_library("libmpich.so.12"))
        env["LD_LIBRARY_PATH"] = str(tmp_path)
    result = starters.mpirun(mpi, 3, PROGRAM, order, **env)
    assert result.returncode == 0, result.stdout + result.stderr
