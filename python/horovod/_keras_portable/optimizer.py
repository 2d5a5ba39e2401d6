# SPDX-License-Identifier: Apache-2.0
"""Optimizers of Keras 3 that apply the gradients of all ranks."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable
from typing import Any

import keras

from horovod._keras.families import Family, chain_of, family_of
from horovod._keras.serialization import save_as
from horovod._keras_portable.exchange import Exchange, Settings


class Distributed:
    """What wrapped optimizers have. Every way of applying gradients leads through `apply` or `stateless_apply`."""

    _hvd: Exchange

    def apply(self, grads: Iterable[Any], trainable_variables: Any = None) -> Any:
        """Apply the gradients of all ranks."""
        plain = super().apply
        return self._hvd.around(self, lambda reduced: plain(reduced, trainable_variables), list(grads))

    def __reduce__(self) -> Any:
        """Have copies and pickles exchange gradients, too: Keras's own are of the plain class."""
        make, arguments, *rest = super().__reduce__()
        return _wrapped_again, (make, arguments, self._hvd.settings), *rest


def _wrapped_again(make: Any, arguments: Any, settings: Settings) -> Any:
    return wrap(make(*arguments), settings)


def exchanging(optimizer: Any) -> Exchange | None:
    """Return the exchange of an optimizer, or of the one inside it; None if nothing is exchanged."""
    return next((one._hvd for one in chain_of(optimizer) if isinstance(one, Distributed)), None)


def wrap(optimizer: Any, settings: Settings) -> Any:
    """Return an optimizer with this one's state, whose gradients are those of all ranks."""
    if family_of(optimizer) is not Family.KERAS3:
        raise TypeError(f"optimizer is a {type(optimizer).__name__}: give one of keras.optimizers")
    exchange = exchanging(optimizer)
    if exchange is not None:
        if exchange.settings != settings:
            raise ValueError(
                f"the optimizer is distributed already, with other options: {exchange.settings}, where this call says "
                f"{settings}. Wrap the plain optimizer once, with all options"
            )
        return optimizer
    _exchange_outside_of_loss_scaling()
    wrapped = _class_for(type(optimizer))
    made = wrapped.__new__(wrapped)
    made.__dict__.update(vars(optimizer))
    # Keras would take it for something to be saved, and so is not asked.
    object.__setattr__(made, "_hvd", Exchange(settings))
    return made


@functools.cache
def _class_for(base: type) -> type:
    names = {"__module__": "horovod._keras_portable", "__doc__": base.__doc__}
    wrapped = types.new_class(base.__name__, (Distributed, base), exec_body=lambda namespace: namespace.update(names))
    save_as(wrapped, base)
    return wrapped


@functools.cache
def _exchange_outside_of_loss_scaling() -> None:
    """
    Have optimizers that scale the loss look at the gradients of all ranks.

    They skip a step whose gradients are not finite. If they looked at this rank's, one rank would skip a step in which
    the others wait for it. `compile` makes them of any optimizer under the policy mixed_float16.
    """
    scaling = keras.mixed_precision.LossScaleOptimizer
    plain_apply, plain_stateless = scaling.apply, scaling.stateless_apply

    @functools.wraps(plain_apply)
    def apply(self: Any, grads: Iterable[Any], trainable_variables: Any = None) -> Any:
        exchange = exchanging(self)
        if exchange is None:
            return plain_apply(self, grads, trainable_variables)
        return exchange.around(self, lambda reduced: plain_apply(self, reduced, trainable_variables), list(grads))

    @functools.wraps(plain_stateless)
    def stateless_apply(self: Any, optimizer_variables: Any, grads: Iterable[Any], trainable_variables: Any) -> Any:
        exchange = exchanging(self)
        if exchange is None:
            return plain_stateless(self, optimizer_variables, grads, trainable_variables)
        return exchange.around(
            self,
            lambda reduced: plain_stateless(self, optimizer_variables, reduced, trainable_variables),
            list(grads),
        )

    scaling.apply, scaling.stateless_apply = apply, stateless_apply
