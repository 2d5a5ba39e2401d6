# SPDX-License-Identifier: Apache-2.0
"""Ranks for processes that an engine such as Spark or Ray has placed: numbers, address of rank 0, variables."""

from __future__ import annotations

import dataclasses
import os
import secrets
import socket
from collections.abc import Mapping, Sequence

# Variables that describe one rank, or the job that this process belongs to.
_NOT_FOR_RANKS = (
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
    "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE",
    "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE",
    "HOROVOD_HOSTNAME",
    "HOROVOD_RENDEZVOUS_ADDR",
    "HOROVOD_TOKEN_FILE",
    "HOROVOD_JOB_ID",
)


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of one rank."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int

    def variables(self) -> dict[str, str]:
        """Return what the rank finds in its environment."""
        return {f"HOROVOD_{name.upper()}": str(value) for name, value in dataclasses.asdict(self).items()}


def arrange(hosts: Sequence[str]) -> list[Place]:
    """
    Return the place of each process, given the host of each process.

    Ranks of a host follow each other, hosts in the order of their first process. The cross rank of a rank is the number
    of hosts before its own that have its local rank.

    >>> [place.rank for place in arrange(["a", "b", "a"])]
    [0, 2, 1]
    """
    names = list(dict.fromkeys(hosts))
    sizes = [sum(host == name for host in hosts) for name in names]
    first = [sum(sizes[:index]) for index in range(len(names))]
    used = dict.fromkeys(names, 0)
    places = []
    for host in hosts:
        index, local_rank = names.index(host), used[host]
        used[host] += 1
        has_local_rank = [size > local_rank for size in sizes]
        places.append(
            Place(
                rank=first[index] + local_rank,
                size=len(hosts),
                local_rank=local_rank,
                local_size=sizes[index],
                cross_rank=sum(has_local_rank[:index]),
                cross_size=sum(has_local_rank),
            )
        )
    return places


@dataclasses.dataclass(frozen=True)
class Whereabouts:
    """Where a process runs that is to become a rank."""

    machine: str  # equal for processes that can share memory
    host: str  # `machine`, or HOROVOD_HOSTNAME
    name: str  # of the host, for people
    pid: int
    at: tuple[str, int]  # address and port at which the process can wait for ranks of other hosts


def whereabouts(at: tuple[str, int]) -> Whereabouts:
    """Return where this process runs. `at` is the address of a socket that `reserve` has made."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    machine = f"{boot}/{os.stat('/proc/self/ns/net').st_ino}/{os.getuid()}"
    return Whereabouts(machine, os.environ.get("HOROVOD_HOSTNAME") or machine, socket.gethostname(), os.getpid(), at)


def reserve(own_address: str) -> socket.socket:
    """
    Return a socket that keeps others from taking its port until rank 0 of several hosts listens there.

    Both may be bound, because both set SO_REUSEADDR and this one does not listen.
    """
    family = socket.AF_INET6 if ":" in own_address else socket.AF_INET
    reserved = socket.socket(family, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((own_address, 0))
    return reserved


@dataclasses.dataclass(frozen=True)
class Meeting:
    """The places of some processes, and the address at which they find each other."""

    places: list[Place]
    address: str
    several_hosts: bool  # so the ranks need a token


def meet(processes: Sequence[Whereabouts]) -> Meeting:
    """Return the place of each process. Processes of one host meet at a random name, which needs no port."""
    places = arrange([process.host for process in processes])
    several = any(len({getattr(process, name) for process in processes}) > 1 for name in ("machine", "host"))
    if not several:
        return Meeting(places, f"local:hvd-{secrets.token_hex(16)}", False)
    address, port = next(process.at for process, place in zip(processes, places) if place.rank == 0)
    return Meeting(places, f"[{address}]:{port}" if ":" in address else f"{address}:{port}", True)


def job_variables() -> dict[str, str]:
    """Return the HOROVOD_* variables of this process that are of use to ranks."""
    return {k: v for k, v in os.environ.items() if k.startswith("HOROVOD_") and k not in _NOT_FOR_RANKS}


def checked_variables(argument: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `given` that are of use to ranks. Raises TypeError if one is not a string."""
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"{argument}[{name!r}]={value!r}: names and values of variables are strings")
    return {k: v for k, v in given.items() if k not in _NOT_FOR_RANKS}
