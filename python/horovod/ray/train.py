# SPDX-License-Identifier: Apache-2.0
"""
Ranks in the workers of Ray Train: `HvdConfig` makes them, and `ray.train.ScalingConfig` says how many there are.

>>> from horovod.ray.train import HvdConfig                              # doctest: +SKIP
>>> from ray.train import ScalingConfig                                  # doctest: +SKIP
>>> from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer   # doctest: +SKIP
>>> def train():
...     import horovod.torch as hvd
...     hvd.init()
>>> scaling = ScalingConfig(num_workers=2)                               # doctest: +SKIP
>>> DataParallelTrainer(train, backend_config=HvdConfig(), scaling_config=scaling).fit()   # doctest: +SKIP
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import ray
from ray.train.backend import Backend, BackendConfig

from horovod.common.basics import HorovodBasics
from horovod.ray.coordinator import Coordinator
from horovod.ray.settings import MiniSettings
from horovod.ray.worker import Seat
from horovod.runner import layout

# Seconds that ranks have to leave the job before Ray ends them.
_LEAVE = 2


@dataclasses.dataclass
class HvdConfig(BackendConfig):
    """
    Makes the workers of a trainer the ranks of one job, so that `hvd.init()` in the training function needs nothing.

    Ranks get the HOROVOD_* variables of the process that runs the trainer, and `env_vars`. Ray has `timeout_s` seconds
    to answer from all workers.
    """

    env_vars: Mapping[str, str] = dataclasses.field(default_factory=dict)
    timeout_s: float = 30

    def __post_init__(self) -> None:
        """Take this process's variables: the trainer's controller may be another one."""
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s={self.timeout_s!r}: give seconds, more than 0")
        self._variables = {**layout.job_variables(), **layout.checked_variables("env_vars", self.env_vars)}

    @property
    def backend_cls(self) -> type[Backend]:
        """What Ray Train calls."""
        return _HvdBackend

    def to_dict(self) -> dict[str, Any]:
        """Return what Ray Train shows of this configuration: names of variables and not their values."""
        return {"env_vars": sorted(self.env_vars), "timeout_s": self.timeout_s}


class _HvdBackend(Backend):
    """Gives every worker its rank before training, and lets the ranks leave the job after it."""

    share_cuda_visible_devices = True  # programs choose a GPU of their host by local_rank()

    def on_start(self, worker_group: Any, backend_config: HvdConfig) -> None:
        """Make the workers ranks."""
        coordinator = Coordinator(MiniSettings())
        for process in _get(worker_group.execute_async(_offer), backend_config.timeout_s):
            coordinator.register(process)
        seats = coordinator.seats(backend_config._variables)
        taken = [worker_group.execute_single_async(index, _take, *seat) for index, seat in enumerate(seats)]
        _get(taken, backend_config.timeout_s)

    def on_shutdown(self, worker_group: Any, backend_config: HvdConfig) -> None:
        """Let the ranks leave. Those that cannot are ended by Ray."""
        ray.wait(leaving := worker_group.execute_async(_leave), num_returns=len(leaving), timeout=_LEAVE)


def _get(refs: list[Any], seconds: float) -> list[Any]:
    ready, late = ray.wait(refs, num_returns=len(refs), timeout=seconds)
    if late:
        raise TimeoutError(
            f"timeout_s={seconds:g}: {len(ready)} of {len(refs)} workers answered: raise timeout_s in HvdConfig, or "
            "look at `ray list actors`"
        )
    return ray.get(refs)


# In the worker. A process has one seat, and Ray Train has no object of ours there.
_seat = Seat()


def _offer() -> layout.Whereabouts:
    return _seat.offer(ray.util.get_node_ip_address())


def _take(variables: dict[str, str], token: str | None) -> None:
    _seat.take(variables, token)


def _leave() -> None:
    HorovodBasics().shutdown()
