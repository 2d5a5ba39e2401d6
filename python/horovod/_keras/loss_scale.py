# SPDX-License-Identifier: Apache-2.0
"""
Loss scaling around a distributed optimizer.

Under a policy such as mixed_float16, `compile` puts the optimizer into a LossScaleOptimizer, which skips a step whose
gradients are not finite. If it looked at this rank's gradients, one rank would skip a step in which the others wait
for it. So it gets the gradients of all ranks.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

_changed: set[type] = set()


def exchange_outside(library: ModuleType, exchanging: Callable[[Any], Any]) -> None:
    """Have optimizers of this Keras that scale the loss exchange gradients before they look at them."""
    scaling = library.mixed_precision.LossScaleOptimizer
    for one in [scaling, *scaling.__subclasses__()]:
        if one in _changed or one.__module__.startswith("horovod."):
            continue
        if "apply" in vars(one):
            one.apply = _keras3(vars(one)["apply"], exchanging)
        elif "apply_gradients" in vars(one):
            one.apply_gradients = _keras2(vars(one)["apply_gradients"], exchanging)
        _changed.add(one)


def _keras3(plain: Callable, exchanging: Callable[[Any], Any]) -> Callable:
    @functools.wraps(plain)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        exchange = exchanging(self)
        if exchange is None:
            return plain(self, grads, trainable_variables)
        return exchange.apply_list(self, functools.partial(plain, self), grads, trainable_variables)

    return apply


def _keras2(plain: Callable, exchanging: Callable[[Any], Any]) -> Callable:
    @functools.wraps(plain)
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        exchange = exchanging(self)
        if exchange is None:
            return plain(self, grads_and_vars, *args, **kwargs)
        return exchange.apply_pairs(self, functools.partial(plain, self), grads_and_vars, args, kwargs)

    return apply_gradients
