# SPDX-License-Identifier: Apache-2.0
"""Gives all ranks the state of one rank: parameters, optimizers and Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from horovod.common import batch, in_sync
from horovod.common.arguments import root_rank as checked_root
from horovod.common.arguments import show
from horovod.common.basics import HorovodBasics
from horovod.common.objects import broadcast_object
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.adapter import as_input, same_bits
from horovod.torch.compiling import eager
from horovod.torch.operations import broadcasting


@eager
def broadcast_parameters(params: Any, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """
    Overwrite all tensors of a dict, or of a list of tensors or (name, tensor) pairs, with root_rank's.

    Give `model.state_dict()`, or `model.named_parameters()`. Values that are no tensors are left as they are. Nothing
    is sent unless every tensor can be.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> model = torch.nn.Linear(2, 1)
    >>> hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    """
    root = checked_root(root_rank)
    items: list[batch.Item] = []
    copies: list[tuple[torch.Tensor, torch.Tensor]] = []
    used: set[str] = set()
    for label, name, tensor in _named(params):
        if not isinstance(tensor, torch.Tensor):
            continue
        try:
            if name in used:
                raise ValueError(f"there is the name {name!r} twice: give each tensor its own")
            own = same_bits(tensor.detach())
            sent = as_input(own)  # a copy where the tensor is not contiguous
            operation = broadcasting(sent, sent, root, process_set).named("broadcast", name)
        except (TypeError, ValueError) as error:
            raise type(error)(f"params[{label}]: {error}") from None
        used.add(name)
        if sent.data_ptr() != own.data_ptr():
            copies.append((own, sent))
        items.append((operation, (sent, tensor)))
    batch.run_all(items)
    for own, sent in copies:
        own.copy_(sent)


def _named(params: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(params, Mapping):
        for name in sorted(params, key=lambda name: (not isinstance(name, str), str(name))):
            yield repr(name), name, params[name]
    elif isinstance(params, Iterable) and not isinstance(params, (str, bytes, torch.Tensor)):
        for i, item in enumerate(params):
            if not isinstance(item, tuple):
                yield str(i), f"parameter.{i}", item
            elif len(item) == 2:
                yield str(i), item[0], item[1]
            else:
                raise ValueError(f"params[{i}]: {show('entry', item)} is no pair: give a tensor or (name, tensor)")
    else:
        raise ValueError(f"{show('params', params)} is {type(params).__name__}: give a dict or a list")


_ADVICE = (
    "Every rank must begin with the same values: call hvd.broadcast_parameters(model.state_dict(), root_rank=0) before "
    "the first step"
)


@eager
def check_in_sync(model_or_params: Any, process_set: ProcessSet = global_process_set) -> None:
    """
    Compare a model's parameters and buffers, or what `broadcast_parameters` takes, among the ranks by checksums.

    If they differ, every rank of the set raises HorovodSyncError, which names the first tensor that differs and the
    ranks. Every rank of the set calls it with the same tensors.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> hvd.check_in_sync(torch.nn.Linear(2, 1))
    """
    params = model_or_params.state_dict() if isinstance(model_or_params, torch.nn.Module) else model_or_params
    tensors = [(str(name), tensor) for _, name, tensor in _named(params) if isinstance(tensor, torch.Tensor)]
    arrays = [(name, lambda tensor=tensor: _array(tensor)) for name, tensor in tensors]
    in_sync.check_in_sync(arrays, "check_in_sync", process_set, _ADVICE)


def _array(tensor: torch.Tensor) -> np.ndarray:
    own = tensor.detach().cpu()
    # NumPy has no type of 16 or 8 bits but float16; float32 holds all values of the others.
    has_none = own.is_floating_point() and own.dtype not in (torch.float16, torch.float32, torch.float64)
    return (own.float() if has_none else own).resolve_neg().resolve_conj().numpy()


class _Place:
    """Stands for a tensor in a structure that travels without its tensors."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape = tuple(tensor.shape)
        self.dtype = tensor.dtype


def _without_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        tensors.append(value)
        return _Place(value)
    if isinstance(value, dict):
        return {key: _without_tensors(one, tensors) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_without_tensors(one, tensors) for one in value)
    return value


def _with_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, _Place):
        tensors.append(torch.empty(value.shape, dtype=value.dtype))
        return tensors[-1]
    if isinstance(value, dict):
        return {key: _with_tensors(one, tensors) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_with_tensors(one, tensors) for one in value)
    return value


@eager
def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """
    Give every rank the state and the settings of root_rank's optimizer, even if theirs has no state yet.

    `model` is for programs that give it.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(2))])
    >>> hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(
            f"{show('optimizer', optimizer)} is a {type(optimizer).__name__}: give a torch.optim.Optimizer"
        )
    root = checked_root(root_rank)
    own = HorovodBasics().rank() == root
    tensors: list[torch.Tensor] = []
    structure = _without_tensors(optimizer.state_dict(), tensors) if own else None
    structure = broadcast_object(structure, root, name="optimizer_state", process_set=process_set)
    if not own:
        state = _with_tensors(structure, tensors)
    named = [(f"optimizer_state.{i}", tensor) for i, tensor in enumerate(tensors)]
    broadcast_parameters(named, root, process_set)
    if not own:
        optimizer.load_state_dict(state)
