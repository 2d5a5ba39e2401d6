# SPDX-License-Identifier: Apache-2.0
"""HOROVOD_CPU_OPERATIONS=MPI: the tests of operations once more, with MPI carrying the data."""

from __future__ import annotations

import json
import pathlib
import re

import starters

HERE = pathlib.Path(__file__).resolve().parent
CARRIED = {"HOROVOD_CPU_OPERATIONS": "MPI", "HOROVOD_LOG_LEVEL": "error"}


@starters.both_mpis
def test_operations(mpi):
    """All of them, in one job that starts anew for each."""
    size = 3
    result = starters.mpirun(mpi, size, str(HERE / "mpi_operations.py"), **CARRIED)
    assert result.returncode == 0, result.stdout + result.stderr
    counts = [int(count) for count in re.findall(r"(\d+) tests", result.stdout)]
    assert len(counts) == size
    assert min(counts) >= 20, counts


@starters.both_mpis
def test_every_type_and_reduction(mpi, tmp_path):
    """Sums of f16 and bf16 are rounded once; NaN goes through min and max; many sizes, also above one round."""
    timeline = tmp_path / "timeline.json"
    result = starters.mpirun(mpi, 2, str(HERE / "mpi_types.py"), HOROVOD_TIMELINE=str(timeline), **CARRIED)
    assert result.returncode == 0, result.stdout + result.stderr
    names = {event.get("name") for event in json.loads(timeline.read_text())}
    assert "MPI_ALLREDUCE" in names
    assert not {name for name in names if name and name.startswith(("SHM_", "TCP_"))}
