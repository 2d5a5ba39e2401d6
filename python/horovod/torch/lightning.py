# SPDX-License-Identifier: Apache-2.0
"""
A strategy of PyTorch Lightning: DistributedDataParallel over the backend "hvd".

Works with `pytorch_lightning` and with `lightning`: with the one that the program has imported.

>>> import pytorch_lightning as lightning                                # doctest: +SKIP
>>> import horovod.torch.lightning                                       # doctest: +SKIP
>>> trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="hvd")   # doctest: +SKIP
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import socket
import sys
from typing import Any

import torch.distributed as dist

from horovod._torch_backend import NAME
from horovod.common.basics import HorovodBasics
from horovod.common.objects import broadcast_object


def _packages() -> tuple[str, str]:
    """Return the names of Lightning and of its Fabric: the package that is imported, or else one that is installed."""
    is_new = "lightning" in sys.modules or (
        "pytorch_lightning" not in sys.modules and importlib.util.find_spec("pytorch_lightning") is None
    )
    return ("lightning.pytorch", "lightning.fabric") if is_new else ("pytorch_lightning", "lightning_fabric")


_lightning, _fabric = _packages()
_strategies = importlib.import_module(f"{_lightning}.strategies")
_environments = importlib.import_module(f"{_fabric}.plugins.environments")
_basics = HorovodBasics()


class HvdEnvironment(_environments.ClusterEnvironment):
    """The ranks of the job in which this process is, started by horovodrun, torchrun, mpirun or srun."""

    def __init__(self) -> None:
        super().__init__()
        _basics.init()
        self._port: int | None = None

    @staticmethod
    def detect() -> bool:
        """Whether horovodrun has started this process."""
        return "HOROVOD_RANK" in os.environ

    @property
    def creates_processes_externally(self) -> bool:
        """The ranks are there when the program begins."""
        return True

    @property
    def main_address(self) -> str:
        """Where rank 0's store is. The backend's ranks are on one host."""
        return os.environ["MASTER_ADDR"] if dist.is_torchelastic_launched() else "127.0.0.1"

    @property
    def main_port(self) -> int:
        """A port that is free on this host, the same on all ranks."""
        if self._port is None:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                own = probe.getsockname()[1]
            by_torchrun = dist.is_torchelastic_launched()
            self._port = int(os.environ["MASTER_PORT"]) if by_torchrun else broadcast_object(own, name="lightning.port")
        return self._port

    def world_size(self) -> int:
        """Return the number of ranks."""
        return _basics.size()

    def set_world_size(self, size: int) -> None:
        """Do nothing: the job has as many ranks as were started, and `validate_settings` has compared."""

    def global_rank(self) -> int:
        """Return this process's rank."""
        return _basics.rank()

    def set_global_rank(self, rank: int) -> None:
        """Do nothing: ranks are given."""

    def local_rank(self) -> int:
        """Return the rank among those of this host."""
        return _basics.local_rank()

    def node_rank(self) -> int:
        """Return the number of the host."""
        return _basics.cross_rank()

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """Raise ValueError if Lightning was told another number of ranks."""
        if num_devices * num_nodes != _basics.size():
            raise ValueError(
                f"devices={num_devices} and num_nodes={num_nodes}, and the job has {_basics.size()} ranks: give "
                f"Trainer(devices={_basics.local_size()}, num_nodes={_basics.cross_size()}), or start another number"
            )


class HvdStrategy(_strategies.DDPStrategy):
    """
    DistributedDataParallel over the backend "hvd"; `Trainer(strategy="hvd")`, or an instance with options.

    Options are those of Lightning's DDPStrategy, and go on to DistributedDataParallel.
    """

    strategy_name = NAME

    def __init__(self, **options: Any) -> None:
        options.setdefault("cluster_environment", HvdEnvironment())
        options.setdefault("process_group_backend", NAME)
        super().__init__(**options)


if NAME not in _strategies.StrategyRegistry:
    _strategies.StrategyRegistry.register(NAME, HvdStrategy, description="DDP over the engine of hvd")
