# SPDX-License-Identifier: Apache-2.0
"""The reductions and the rule that chooses one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from horovod.common import abi
from horovod.common.arguments import show, whole_number

Average = abi.AVERAGE
Sum = abi.SUM
Adasum = abi.ADASUM
Min = abi.MIN
Max = abi.MAX
Product = abi.PRODUCT

_ALLOWED = "hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max or hvd.Product"


def choose(op: Any, average: Any) -> int:
    """Return the reduction that `op` and the deprecated `average` mean together. For the public functions to call."""
    if average is not None:
        if op is not None:
            raise ValueError("op and average are exclusive: give op only")
        if not isinstance(average, (bool, np.bool_)) and not (type(average) is int and average in (0, 1)):
            raise TypeError(f"{show('average', average)} is no boolean: use op=hvd.Average or op=hvd.Sum instead")
        # The caller of the public function is who reads this.
        warnings.warn("average is deprecated: use op=hvd.Average or op=hvd.Sum", DeprecationWarning, stacklevel=3)
        return Average if average else Sum
    if op is None:
        return Average
    if type(op) is not int:
        op = whole_number("op", op, _ALLOWED)
    if not Average <= op <= Product:
        raise ValueError(f"{show('op', op)} is no reduction: give {_ALLOWED}")
    return op
