# SPDX-License-Identifier: Apache-2.0
"""
The state of models, optimizers and samplers.

PyTorch overwrites tensors in place, so a commit copies them, into the memory of the commit before the last one.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from horovod.common import schema
from horovod.common.arguments import show
from horovod.common.basics import HorovodBasics
from horovod.common.elastic import ObjectState
from horovod.common.objects import broadcast_object
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import broadcast_optimizer_state, broadcast_parameters


class StateHandler:
    """Saves, restores and sends one value of a TorchState. Programs may make handlers of their own."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keep the value in this process."""
        raise NotImplementedError

    def restore(self) -> None:
        """Take the value back to what was kept."""
        raise NotImplementedError

    def sync(self) -> None:
        """Give every rank the value of rank 0."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Handle another value from now on, and keep it."""
        self.value = value
        self.save()


class KeepingHandler(StateHandler):
    """A handler whose value can be kept outside of it, so that a state can go back to either of two commits."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._saved: Any = None
        self.save()

    def capture(self, spare: Any) -> Any:
        """Return a copy of the value; `spare` is an old one that may be overwritten, or None."""
        raise NotImplementedError

    def assign(self, kept: Any) -> None:
        """Take the value back to a copy, which may be assigned again later."""
        raise NotImplementedError

    def save(self) -> None:
        """Keep the value in this process."""
        self._saved = self.capture(None)

    def restore(self) -> None:
        """Take the value back to what was kept."""
        self.assign(self._saved)


class ModelStateHandler(KeepingHandler):
    """Handles a model: its parameters and buffers."""

    def capture(self, spare: Any) -> Any:
        """Return copies of the model's tensors."""
        return _copied(self.value.state_dict(), spare)

    def assign(self, kept: Any) -> None:
        """Overwrite the model's tensors, and forget gradients."""
        self.value.load_state_dict(kept)
        self.value.zero_grad()

    def sync(self) -> None:
        """Overwrite the model's tensors with those of rank 0. ValueError if the model is another one."""
        own = [
            schema.Entry(name, tuple(one.shape), str(one.dtype).removeprefix("torch."))
            for name, one in self.value.state_dict().items()
            if isinstance(one, torch.Tensor)
        ]
        schema.check(own, broadcast_object(own))
        broadcast_parameters(self.value.state_dict(), root_rank=0)


class OptimizerStateHandler(KeepingHandler):
    """Handles an optimizer: its state and its settings."""

    def capture(self, spare: Any) -> Any:
        """Return a copy of the optimizer's state."""
        return _copied(self.value.state_dict(), spare)

    def assign(self, kept: Any) -> None:
        """Take the optimizer back, and forget gradients that were being reduced."""
        reducer = getattr(self.value, "_reducer", None)
        if reducer is not None:
            reducer.abandon()
        self.value.load_state_dict(_copied(kept, None))

    def sync(self) -> None:
        """Give every rank the optimizer of rank 0."""
        broadcast_optimizer_state(self.value, root_rank=0)


class SamplerStateHandler(KeepingHandler):
    """Handles an ElasticSampler: all ranks have processed the same samples."""

    def capture(self, spare: Any) -> Any:
        """Return where the sampler is."""
        return self.value.state_dict()

    def assign(self, kept: Any) -> None:
        """Take the sampler back."""
        self.value.load_state_dict(kept)

    def sync(self) -> None:
        """Go on where rank 0's sampler is."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))


_registry: list[tuple[type, type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """Return which handler is made for a value of which class; the first match counts."""
    return _registry


def set_handler_registry(registry: list[tuple[type, type[StateHandler]]]) -> None:
    """Set which handler is made for a value of which class."""
    global _registry
    _registry = registry


def _handler_for(value: Any) -> StateHandler | None:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    return None


class TorchState(ObjectState):
    """
    A state of models, optimizers, samplers, and of objects as attributes.

    Each keyword whose value is a Module, an Optimizer or an ElasticSampler is handled as such; all others are objects.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    >>> sampler = hvd.elastic.ElasticSampler(range(100))
    >>> state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0)
    >>> state.commit()
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        given = {name: one for name, one in (("model", model), ("optimizer", optimizer)) if one is not None}
        for name, value in given.items():
            if _handler_for(value) is None:
                raise TypeError(f"{show(name, value)} is neither a Module nor an Optimizer: give it another name")
        given.update(kwargs)
        self._handlers: dict[str, StateHandler] = {}
        for name, value in given.items():
            handler = _handler_for(value)
            if handler is not None:
                self._handlers[name] = handler
        super().__init__(
            broadcast_object,
            HorovodBasics().rank,
            **{name: value for name, value in given.items() if name not in self._handlers},
        )

    def __getattr__(self, name: str) -> Any:
        handlers = self.__dict__.get("_handlers", {})
        if name in handlers:
            return handlers[name].value
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_handlers", {}):
            self._handlers[name].set_value(value)
        else:
            super().__setattr__(name, value)

    def sync(self) -> None:
        """Give every rank the models, optimizers, samplers and objects of rank 0, and keep them."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self) -> None:
        """Deal the samples out to the ranks that there are now."""
        for handler in self._handlers.values():
            if isinstance(handler, SamplerStateHandler):
                handler.value.reset()
        super().reset()

    def _capture(self, spare: Any) -> Any:
        old = spare[1] if spare is not None else {}
        kept = {}
        for name, handler in self._handlers.items():
            if isinstance(handler, KeepingHandler):
                kept[name] = handler.capture(old.get(name))
            else:
                handler.save()
        return super()._capture(None), kept

    def _arrays_of(self, kept: Any) -> Any:
        return kept[1]

    def _assign(self, kept: Any) -> None:
        objects, values = kept
        super()._assign(objects)
        for name, handler in self._handlers.items():
            if name in values:
                handler.assign(values[name])
            elif not isinstance(handler, KeepingHandler):
                handler.restore()

    def _go_back_to(self, number: int) -> bool:
        holds = super()._go_back_to(number)
        return holds and all(isinstance(handler, KeepingHandler) for handler in self._handlers.values())


def _copied(value: Any, spare: Any) -> Any:
    """Return a copy of tensors in dicts and lists, in the memory of an old one if that has the same tensors."""
    if isinstance(value, torch.Tensor):
        own = value.detach()
        if isinstance(spare, torch.Tensor) and spare.shape == own.shape and spare.dtype == own.dtype:
            return spare.copy_(own)
        return own.clone()
    if isinstance(value, dict):
        old = spare if isinstance(spare, dict) else {}
        return {name: _copied(one, old.get(name)) for name, one in value.items()}
    if type(value) in (list, tuple):
        old = spare if isinstance(spare, (list, tuple)) and len(spare) == len(value) else [None] * len(value)
        return type(value)(_copied(one, before) for one, before in zip(value, old))
    return copy.deepcopy(value)
