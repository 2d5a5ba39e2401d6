# SPDX-License-Identifier: Apache-2.0
"""What init(comm=...) takes: ranks, or a communicator of mpi4py."""

from __future__ import annotations

import numbers
from typing import Any

from horovod.common.arguments import show
from horovod.common.starting import EVERYBODY, Members


def members_of(comm: Any) -> Members:
    """Return which processes the job is made of; None and an empty list mean all."""
    if comm is None:
        return EVERYBODY
    if hasattr(comm, "Get_rank"):
        return _of_communicator(comm)
    if not isinstance(comm, (list, tuple, range)):
        raise TypeError(f"{show('comm', comm)} is no communicator: give a list of ranks or an mpi4py communicator")
    if not all(isinstance(rank, numbers.Integral) and not isinstance(rank, bool) for rank in comm):
        raise ValueError(f"{show('comm', comm)} needs whole numbers as ranks")
    if any(not 0 <= rank < 2**31 for rank in comm):
        raise ValueError(f"{show('comm', comm)} names a rank that no job has")
    return Members(ranks=tuple(int(rank) for rank in comm))


def _of_communicator(comm: Any) -> Members:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise TypeError(f"{show('comm', comm)} is no communicator of mpi4py, which is not installed") from error
    if comm == MPI.COMM_NULL:
        raise ValueError("comm is MPI.COMM_NULL: only the processes of a communicator may call init with it")
    return Members(mpi_comm=MPI._addressof(comm))
