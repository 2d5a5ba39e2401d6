# SPDX-License-Identifier: Apache-2.0
"""
Children of ranks: a program that a rank starts inherits its variables, and with them its place in the job.

The others would wait for that child, or it for them, until the start time-out. So a rank leaves its process id and its
place in HOROVOD_INIT_PROCESS while it is in the job, and `init` refuses a process that has such a rank as an ancestor
and would take the same place. A job that a rank starts by a launcher has other places.
"""

from __future__ import annotations

import os
import pathlib

from horovod.common.exceptions import HorovodInitError

_MARK = "HOROVOD_INIT_PROCESS"
# What makes a process a rank; see base/launcher.cc.
_PLACE = (
    "HOROVOD_RANK",
    "HOROVOD_RENDEZVOUS_ADDR",
    "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "HOROVOD_JOB_ID",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "SLURM_PROCID",
    "RANK",
)


def refuse_child_of_rank() -> None:
    """Raise HorovodInitError if an ancestor of this process is in the job, in the place that this process has."""
    pid, _, place = os.environ.get(_MARK, "").partition(" ")
    if not pid.isdigit() or place != _place() or int(pid) not in _ancestors():
        return
    rank = place.split(" ", 1)[0]
    who = f"rank {rank} (pid {pid})" if rank.isdigit() else f"a rank (pid {pid})"
    raise HorovodInitError(
        f"this process was started by {who}, which is in the job already: it has inherited that rank's variables, and "
        "each rank is one process. Leave hvd.init() out of the program that the rank starts, or start it without "
        "HOROVOD_RANK, HOROVOD_SIZE and HOROVOD_RENDEZVOUS_ADDR to make it a job of its own"
    )


def enter() -> None:
    """Leave word for programs that this process will start. A job of one rank has nobody who could wait."""
    if _place().strip() and os.environ.get("HOROVOD_SIZE") != "1":
        os.environ[_MARK] = f"{os.getpid()} {_place()}"


def leave() -> None:
    """Take it back: this rank has left the job, and a program that it starts may take its place."""
    if os.environ.get(_MARK, "").partition(" ")[0] == str(os.getpid()):
        del os.environ[_MARK]


def _place() -> str:
    return " ".join(os.environ.get(name, "") for name in _PLACE)


def _ancestors() -> set[int]:
    found: set[int] = set()
    pid = os.getppid()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            # The name, in parentheses, may hold spaces and parentheses.
            pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return found
