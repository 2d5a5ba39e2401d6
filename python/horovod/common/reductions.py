# SPDX-License-Identifier: Apache-2.0
"""The reductions and the rule that chooses one."""

from __future__ import annotations

import warnings

from horovod.common import abi
from horovod.common.exceptions import HorovodUnsupportedError

Average = abi.AVERAGE
Sum = abi.SUM
Adasum = abi.ADASUM
Min = abi.MIN
Max = abi.MAX
Product = abi.PRODUCT


def choose(op: int | None, average: bool | None) -> int:
    """Return the reduction that `op` and the deprecated `average` mean together."""
    if average is not None:
        if op is not None:
            raise ValueError("op and average are exclusive: give op only")
        warnings.warn("average is deprecated: use op=hvd.Average or op=hvd.Sum", DeprecationWarning, stacklevel=4)
        return Average if average else Sum
    if op is None:
        return Average
    if op == Adasum:
        raise HorovodUnsupportedError("op=hvd.Adasum does not exist in this release yet")
    return op
