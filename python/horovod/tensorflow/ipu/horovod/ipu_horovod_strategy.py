# SPDX-License-Identifier: Apache-2.0
"""`IPUHorovodStrategy`, the old name of HorovodStrategy."""

from __future__ import annotations

from horovod.tensorflow.ipu.devices import found
from horovod.tensorflow.strategy import HorovodStrategy


class IPUHorovodStrategy(HorovodStrategy):
    """
    HorovodStrategy. `ipu_device` may name any device; the name of an IPU means the default device.

    >>> IPUHorovodStrategy(variables_on_host=True).num_replicas_in_sync >= 1
    True
    """

    def __init__(self, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False) -> None:
        super().__init__(found(ipu_device), variables_on_host)


IPUHorovodStrategyV1 = IPUHorovodStrategy
