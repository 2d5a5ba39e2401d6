# SPDX-License-Identifier: Apache-2.0
"""
Two decisions that Keras makes locally under a strategy, and that ranks must make together.

Under a policy such as mixed_float16, Keras 3 checks this rank's gradients before it reduces them. A rank that finds an
infinity would skip a step in which the other ranks wait. And a step that XLA compiles cannot run collectives. Models
outside of hvd's strategies see no change.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable

from horovod._keras import xla
from horovod.tensorflow.strategy import exchange
from horovod.tensorflow.within import reduces_for_itself

_changed: set[str] = set()


def install() -> None:
    """Install both hooks into every Keras that this process has imported; later calls cost little."""
    for name in ("keras", "tf_keras"):
        module = sys.modules.get(name)
        if name in _changed or not hasattr(module, "Model"):  # still being imported
            continue
        _changed.add(name)
        xla.keep_out(module, _is_ours)
        scaling = module.mixed_precision.LossScaleOptimizer
        if "check_finite" in vars(scaling):
            scaling.check_finite = _agreed(scaling.check_finite)


def _is_ours(model: Any) -> bool:
    return reduces_for_itself(getattr(model, "distribute_strategy", None))


def _agreed(plain: Callable) -> Callable:
    @functools.wraps(plain)
    def check_finite(self: Any, grads: Any) -> Any:
        finite = plain(self, grads)
        return exchange.all_ranks(finite) if reduces_for_itself() else finite

    return check_finite
