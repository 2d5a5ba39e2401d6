# SPDX-License-Identifier: Apache-2.0
"""
Optimizers that apply the gradients of all ranks.

A wrapped optimizer is of a class made for it: a subclass of the optimizer's own, with its name. Keras, users'
`isinstance` and saved files see the class that they know. Keras never forgets a class that it can save, so there is
one for all optimizers with the same options, and it holds nothing of a model.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from horovod._keras import loss_scale, xla
from horovod._keras.exchange import Exchange
from horovod._keras.families import Family, chain_of, family_of, is_built, library_of
from horovod._keras.serialization import public_names, save_as
from horovod._keras.settings import Settings


class CallableList(list):
    """A list that may also be called: `optimizer.variables` is a list in Keras 3, and was a method before."""

    def __call__(self) -> CallableList:
        """Return the list."""
        return self


class Distributed:
    """What all wrapped optimizers have."""

    _hvd_settings = Settings()  # for those made from a configuration
    _hvd: Exchange
    _HAS_AGGREGATE_GRAD = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        attach(self, self._hvd_settings)

    @property
    def variables(self) -> CallableList:
        """The optimizer's variables; may be called, too."""
        found = super().variables
        return CallableList(found if isinstance(found, (list, tuple)) else found())

    def __reduce__(self) -> Any:
        """Have copies and pickles exchange gradients, too: Keras's own are of the plain class."""
        make, arguments, *rest = super().__reduce__()
        return _wrapped_again, (make, arguments, self._hvd.settings), *rest

    @property
    def _agg_helper(self) -> Any:
        return self._hvd.aggregation

    def register_local_var(self, var: Any) -> None:
        """Do not reduce the gradient of a variable."""
        self._hvd.local.add(var)

    def _allreduce(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        return self._hvd.collect(grads, vars)


class DistributedKeras3(Distributed):
    """Optimizers of Keras 3: all ways of applying gradients lead through `apply`."""

    def apply(self, grads: Iterable[Any], trainable_variables: Any = None) -> Any:
        """Apply the gradients of all ranks."""
        return self._hvd.apply_list(self, super().apply, grads, trainable_variables)


class DistributedPairs(Distributed):
    """Optimizers of Keras 2, legacy or not: all ways of applying gradients lead through `apply_gradients`."""

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
        """Apply the gradients of all ranks, or these as they are where the caller says that they are aggregated."""
        aggregated = kwargs.get("skip_gradients_aggregation") or not kwargs.get(
            "experimental_aggregate_gradients", True
        )
        return self._hvd.apply_pairs(self, super().apply_gradients, grads_and_vars, args, kwargs, aggregated)

    def _aggregated(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        pairs = list(grads_and_vars)
        if self._hvd.has_nothing_to_do():
            return pairs
        variables = [variable for _, variable in pairs]
        return list(zip(self._allreduce([grad for grad, _ in pairs], variables), variables))


class DistributedKeras2(DistributedPairs):
    """Optimizers of Keras 2."""

    def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> Any:
        # As legacy optimizers do, for training steps that were written for them: of this rank, as compute_gradients.
        if grad_loss is None:
            return self.compute_gradients(loss, var_list, tape)
        if tape is None:
            with tf.GradientTape() as tape:
                loss = loss()
        variables = list(var_list() if callable(var_list) else var_list)
        return list(zip(tape.gradient(loss, variables, grad_loss), variables))

    def _aggregate_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> Any:
        # For apply_gradients(experimental_aggregate_gradients=False).
        return self._aggregated(grads_and_vars)

    def aggregate_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> Any:
        """Return the pairs with the gradients of all ranks; for apply_gradients(skip_gradients_aggregation=True)."""
        return super().aggregate_gradients(self._aggregated(grads_and_vars))


class DistributedLegacy(DistributedPairs):
    """Legacy optimizers of Keras 2."""

    def _aggregate_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> Any:
        return super()._aggregate_gradients(self._aggregated(grads_and_vars))


_CLASSES = {Family.KERAS3: DistributedKeras3, Family.KERAS2: DistributedKeras2, Family.LEGACY: DistributedLegacy}


def attach(optimizer: Any, settings: Settings) -> None:
    """Give an instance its own exchange. Keras would take it for something to be saved, and so is not asked."""
    object.__setattr__(optimizer, "_hvd", Exchange(settings))


def exchanging(optimizer: Any) -> Exchange | None:
    """Return the exchange of an optimizer, or of the one inside it; None if nothing is exchanged."""
    for one in chain_of(optimizer):
        if isinstance(one, Distributed):
            return one._hvd
    return None


def is_exchanging(optimizer: Any) -> bool:
    """Whether training with this optimizer sends anything, as far as is known before `init`."""
    exchange = exchanging(optimizer)
    try:
        return exchange is not None and exchange.talks()
    except ValueError:  # not initialized: the first step will say so
        return False


def _model_is_exchanging(model: Any) -> bool:
    return is_exchanging(getattr(model, "optimizer", None))


def wrap(optimizer: Any, settings: Settings) -> Any:
    """Return an optimizer like this one, with its state, whose gradients are those of all ranks."""
    exchange = exchanging(optimizer)
    if exchange is not None:
        _check_the_same(exchange.settings, settings)
        return optimizer
    optimizer = _as_compile_wants_it(optimizer)
    mixin = _CLASSES[family_of(optimizer)]
    if settings.backward_passes_per_step > 1:
        _check_accumulation(optimizer)
    library = library_of(type(optimizer))
    xla.keep_out(library, _model_is_exchanging)
    loss_scale.exchange_outside(library, exchanging)
    return _instance(_class_for(mixin, type(optimizer), settings.without_model()), optimizer, settings)


_made: dict[tuple[type, type, Settings], type] = {}
_making = threading.Lock()


def _class_for(*kind: Any) -> type:
    with _making:
        try:
            if kind not in _made:
                _made[kind] = _subclass(*kind)
            return _made[kind]
        except TypeError:  # a compressor of the user that cannot be hashed
            return _subclass(*kind)


def _subclass(mixin: type, base: type, settings: Settings) -> type:
    names = {
        "__module__": "horovod._keras",
        "__doc__": base.__doc__,
        "_hvd_settings": settings,
        **public_names(base),
    }
    wrapped = types.new_class(base.__name__, (mixin, base), exec_body=lambda namespace: namespace.update(names))
    save_as(wrapped, base)
    return wrapped


def _check_the_same(first: Settings, second: Settings) -> None:
    before = first.differences(second)
    if before:
        raise ValueError(
            f"the optimizer is distributed already, with other options: {before}, where this call says "
            f"{second.differences(first)}. Wrap the plain optimizer once, with all options"
        )


def _as_compile_wants_it(optimizer: Any) -> Any:
    # Where TensorFlow behaves as version 1, `compile` would make a plain legacy optimizer of the wrapped one.
    if family_of(optimizer) is Family.KERAS2 and not tf.__internal__.tf2.enabled():
        return library_of(type(optimizer)).__internal__.optimizers.convert_to_legacy_optimizer(optimizer)
    return optimizer


def _wrapped_again(make: Any, arguments: Any, settings: Settings) -> Any:
    made = make(*arguments)
    if not isinstance(made, Distributed):
        return wrap(made, settings)
    attach(made, settings)  # Python's own way: what the class is called with, and the rest follows
    return made


def _instance(wrapped: type, optimizer: Any, settings: Settings) -> Any:
    if not is_built(optimizer):
        try:
            made = wrapped.from_config(optimizer.get_config())
        except Exception:  # schedules and functions of users often have no configuration
            made = None
        if isinstance(made, wrapped):
            # What was set after the optimizer was made is not in its configuration: exclude_from_weight_decay.
            for name, value in vars(optimizer).items():
                if name not in vars(made):
                    object.__setattr__(made, name, value)
            attach(made, settings)
            return made
    # The state itself is what has to be kept, so both have it in common.
    made = wrapped.__new__(wrapped)
    made.__dict__.update(vars(optimizer))
    attach(made, settings)
    return made


def _check_accumulation(optimizer: Any) -> None:
    if any(getattr(one, "gradient_accumulation_steps", None) for one in chain_of(optimizer)):
        raise ValueError("backward_passes_per_step and the optimizer's gradient_accumulation_steps exclude each other")
