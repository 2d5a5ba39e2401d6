# SPDX-License-Identifier: Apache-2.0
"""
Rank, size and rendezvous address of a task, from TF_CONFIG or another cluster resolver of TensorFlow.

The chief is rank 0; without a chief, worker 0 is. The address of rank 0 is the rendezvous address of all tasks.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import tensorflow as tf

from horovod.common import starting
from horovod.common.basics import HorovodBasics
from horovod.common.exceptions import HorovodInitError, HorovodTimeoutError
from horovod.common.objects import allgather_object

# Users start workers by hand, each in its own terminal.
START_TIMEOUT_S = 600.0

# What the engine says of it; see rendezvous/tcp/server.cc.
_PORT_IS_TAKEN = "the store's port is taken"

_TYPES = ("chief", "worker", "evaluator")


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The tasks of a job in rank order, each as (type, index, address), and the rank of this process."""

    tasks: tuple[tuple[str, int, str], ...]
    rank: int

    @property
    def size(self) -> int:
        """The number of tasks."""
        return len(self.tasks)

    @property
    def task(self) -> tuple[str, int, str]:
        """The task that this process is."""
        return self.tasks[self.rank]

    def name_of(self, rank: int) -> str:
        """Return the type, index and address of a rank."""
        kind, index, address = self.tasks[rank]
        return f"{kind} {index} at {address}"


ALONE = Cluster((("worker", 0, ""),), 0)


def of_resolver(resolver: Any) -> Cluster:
    """Return the cluster of a resolver; ALONE if it describes none. Raises ValueError for a bad cluster."""
    try:
        spec = resolver.cluster_spec()
        jobs = spec.as_dict() if spec is not None else {}
        kind, index = resolver.task_type, resolver.task_id
    except ValueError as error:
        source = type(resolver).__name__
        if isinstance(resolver, tf.distribute.cluster_resolver.TFConfigClusterResolver):
            source = f"TF_CONFIG={os.environ.get('TF_CONFIG')!r}"
        raise ValueError(f"{source} gives no cluster: {error}") from error
    return of_jobs(jobs, kind, index)


def of_jobs(jobs: dict[str, Any], kind: str | None, index: Any) -> Cluster:
    """
    Return the cluster of a table of addresses by task type.

    >>> cluster = of_jobs({"chief": ["a:1"], "worker": ["b:1", "b:2"]}, "worker", 0)
    >>> cluster.rank, cluster.size, cluster.name_of(2)
    (1, 3, 'worker 1 at b:2')
    """
    if not jobs:
        return ALONE
    tasks = []
    for one in ("chief", "worker"):
        addresses = jobs.get(one, [])
        if not isinstance(addresses, (list, tuple)):
            raise ValueError(
                f"the cluster's {one}s are {addresses!r}: list every address, in the order of task indices"
            )
        tasks += [(one, place, _checked_address(one, place, address)) for place, address in enumerate(addresses)]
    if len(jobs.get("chief", [])) > 1:
        raise ValueError(f"the cluster has {len(jobs['chief'])} chiefs: name one, and the others as workers")
    if len({address for _, _, address in tasks}) < len(tasks):
        raise ValueError(f"the cluster names an address twice: {', '.join(address for _, _, address in tasks)}")
    return Cluster(*_placed(tuple(tasks), jobs, kind, index))


def _placed(tasks: tuple, jobs: dict[str, Any], kind: str | None, index: Any) -> tuple[tuple, int]:
    if kind is None:
        raise ValueError(
            "the cluster does not say which task this process is: add "
            '"task": {"type": "worker", "index": 0} to TF_CONFIG, with this process\'s own type and index'
        )
    if kind == "ps" or kind not in _TYPES:
        raise ValueError(
            f"task type {kind!r} has no part in synchronous data-parallel training: start chief and workers only"
        )
    try:
        place = int(0 if index is None else index)
    except ValueError:
        raise ValueError(f"task index {index!r} is not a whole number") from None
    if kind == "evaluator":
        return (("evaluator", place, ""),), 0
    for rank, (one, number, _) in enumerate(tasks):
        if (one, number) == (kind, place):
            return tasks, rank
    known = ", ".join(f"{one} {number}" for one, number, _ in tasks) or "none"
    raise ValueError(f"task {kind} {place} is not in the cluster, whose tasks are: {known}")


def _checked_address(kind: str, place: int, address: Any) -> str:
    host, colon, port = str(address).rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ValueError(f"{kind} {place} has the address {address!r}: give host:port")
    return str(address)


def join(cluster: Cluster) -> None:
    """Connect the tasks, in whatever order they start, unless hvd.init() has connected them already."""
    basics = HorovodBasics()
    if cluster is ALONE:
        basics.init()
    elif basics.is_initialized():
        _check_initialized(cluster, basics)
    elif cluster.size == 1:
        basics.init_at(starting.Place(0, 1))
    else:
        _meet(cluster, basics)


def _check_initialized(cluster: Cluster, basics: HorovodBasics) -> None:
    if (basics.rank(), basics.size()) != (cluster.rank, cluster.size):
        raise ValueError(
            f"hvd.init() made this process rank {basics.rank()} of {basics.size()}, and in the cluster it is rank "
            f"{cluster.rank} of {cluster.size}: leave hvd.init() to the strategy, or use HorovodStrategy"
        )


def _meet(cluster: Cluster, basics: HorovodBasics) -> None:
    seconds = 0.0 if "HOROVOD_START_TIMEOUT" in os.environ else START_TIMEOUT_S
    try:
        basics.init_at(starting.Place(cluster.rank, cluster.size, cluster.tasks[0][2], seconds))
    except (HorovodInitError, HorovodTimeoutError, ValueError, PermissionError) as error:
        tasks = "; ".join(f"rank {rank} is {cluster.name_of(rank)}" for rank in range(cluster.size))
        reason = _taken(cluster) if _PORT_IS_TAKEN in str(error) else error
        raise type(error)(f"the tasks of the cluster did not come together: {reason}. {tasks}") from error
    _compare(cluster, basics)


def _taken(cluster: Cluster) -> str:
    return (
        f"another program listens at {cluster.tasks[0][2]}. If it is a tf.distribute.Server of this task, remove it, "
        "because the strategy needs none, or create it after the strategy. Otherwise give the task another port"
    )


def _compare(cluster: Cluster, basics: HorovodBasics) -> None:
    others = allgather_object(cluster.tasks, name="strategy.cluster")
    different = [rank for rank, tasks in enumerate(others) if tasks != others[0]]
    if different:
        basics.shutdown()
        raise ValueError(
            f"rank {different[0]} has another cluster than rank 0: {_listed(others[different[0]])} instead of "
            f"{_listed(others[0])}. Give every task the same cluster"
        )


def _listed(tasks: Any) -> str:
    return ", ".join(f"{kind} {index} at {address}" for kind, index, address in tasks)
