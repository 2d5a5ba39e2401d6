# SPDX-License-Identifier: Apache-2.0
"""Optimizers that step with the gradients of all ranks."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable

import torch

from horovod.common import reductions
from horovod.common.arguments import show, whole_number
from horovod.common.process_sets import ProcessSet, global_process_set, takes_part
from horovod.torch.adasum_optimizer import AdasumOptimizer
from horovod.torch.buckets import Reduction
from horovod.torch.compiling import eager
from horovod.torch.compression import Compression, checked_compression
from horovod.torch.reducer import Reducer
from horovod.torch.reducing import allreduce


class ReducingOptimizer(torch.optim.Optimizer):
    """
    What a distributed optimizer has before the methods of the class of the user's optimizer.

    It has the attributes of the user's optimizer, and shares its state and its groups.
    """

    def _set_out(
        self, given: torch.optim.Optimizer, names: Sequence[str], reducer: Reducer | None, again: tuple
    ) -> None:
        """Take the place of an optimizer. `reducer` None: there is nothing to reduce. `again`: what makes a copy."""
        # A scheduler that was made before has put a function in the place of the method.
        self.__dict__.update({name: value for name, value in given.__dict__.items() if name != "step"})
        self.__dict__["_hvd"] = (given, list(names), reducer, again)
        self.__dict__["_hvd_synchronizes"] = True

    @property
    def _reducer(self) -> Reducer | None:
        return self.__dict__["_hvd"][2]

    # A GradScaler reads gradients through this attribute between backward() and step(). They must be reduced by then,
    # so that it finds the same infinities on all ranks.
    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of parameters. Reading them waits for gradients that are being reduced."""
        _, _, reducer, _ = self.__dict__.get("_hvd", (None, None, None, None))
        if reducer is not None and reducer.dirty:
            reducer.synchronize()
        return self.__dict__["param_groups"]

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups

    @eager
    def synchronize(self) -> None:
        """Wait until all gradients are reduced. `step` does it, too; call it to look at gradients or to change them."""
        if self._reducer is not None:
            self._reducer.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Have `step` not synchronize: for programs that have called `synchronize` before."""
        self.__dict__["_hvd_synchronizes"] = False
        try:
            yield
        finally:
            self.__dict__["_hvd_synchronizes"] = True

    @eager
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step with the gradients of all ranks. Those that `closure` computes are reduced each time it is called."""
        given, _, reducer, _ = self.__dict__["_hvd"]
        if reducer is not None and self.__dict__["_hvd_synchronizes"]:
            if closure is None:
                reducer.synchronize()
            else:
                closure = self._reducing(closure, reducer)
        try:
            return super().step(closure)
        finally:
            if reducer is not None:
                reducer.synchronized = False
            given._opt_called = True  # for a scheduler that was made before

    step.hooked = True  # type: ignore[attr-defined]  # the hooks of PyTorch are those of the method inside

    def _reducing(self, closure: Callable[[], Any], reducer: Reducer) -> Callable[[], Any]:
        decides_by_loss = isinstance(self, torch.optim.LBFGS)

        def reduced() -> Any:
            reducer.synchronized = False
            with torch.enable_grad():
                loss = closure()
            reducer.synchronize()
            if not decides_by_loss:
                return loss
            # Ranks that see other losses would take other decisions.
            how = reducer.how
            mean = torch.as_tensor(loss).detach()
            name = f"{reducer.members[0].name}.loss"
            mean = allreduce(mean, op=how.op, name=name, process_set=how.process_set)
            return mean if isinstance(loss, torch.Tensor) else mean.item()

        return reduced

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set gradients to zero or None. AssertionError while they are being reduced."""
        if self._reducer is not None and self._reducer.dirty:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() and before optimizer.step() or "
                "optimizer.synchronize(): gradients that are being reduced would be lost"
            )
        super().zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, whose gradients are reduced, too."""
        super().add_param_group(param_group)
        _, names, reducer, _ = self.__dict__["_hvd"]
        groups = self.__dict__["param_groups"]
        added = [(f"noname.{len(groups) - 1}.{i}", param) for i, param in enumerate(groups[-1]["params"])]
        names += [name for name, _ in added]
        if reducer is not None:
            reducer.add(added)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Reduce gradients after that many backward passes from now on."""
        passes = _checked_passes(passes)
        if self._reducer is not None:
            self._reducer.set_passes(passes)

    @property
    def _parameter_names(self) -> dict[torch.Tensor, str]:
        names = self.__dict__["_hvd"][1]
        return dict(zip((param for group in self.__dict__["param_groups"] for param in group["params"]), names))

    @property
    def _handles(self) -> dict[torch.Tensor, tuple[int, None]]:
        members = self._reducer.members if self._reducer is not None else []
        in_flight = [member for member in members if member.bucket is not None and member.bucket.handle is not None]
        return {member.param: (member.bucket.handle, None) for member in in_flight}

    @property
    def _allreduce_delay(self) -> dict[torch.Tensor, int]:
        return {member.param: member.left for member in self._reducer.members} if self._reducer is not None else {}

    def __reduce_ex__(self, protocol: Any) -> tuple:
        plain = type(self).__mro__[2]
        inside = plain.__new__(plain)
        inside.__dict__.update({key: value for key, value in self.__dict__.items() if key not in _OWN})
        _, names, _, again = self.__dict__["_hvd"]
        return _restore, (inside, names, *again)


_OWN = ("_hvd", "_hvd_synchronizes", "step")


class _Set:
    """A process set in a copy of an optimizer: the same one."""

    def __init__(self, process_set: ProcessSet) -> None:
        self.process_set = process_set

    def __deepcopy__(self, memo: dict) -> _Set:
        return self

    def __reduce__(self) -> tuple:
        return _set_again, (None if self.process_set is global_process_set else self.process_set,)


def _set_again(process_set: ProcessSet | None) -> _Set:
    return _Set(global_process_set if process_set is None else process_set)


def _restore(
    inside: torch.optim.Optimizer, names: list[str], settings: dict, groups: list[list[int]], one: _Set
) -> Any:
    params = _flat(inside)
    parts: Any = [[params[i] for i in group] for group in groups] or None
    return DistributedOptimizer(inside, list(zip(names, params)), groups=parts, process_set=one.process_set, **settings)


def _flat(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [param for group in optimizer.param_groups for param in group["params"]]


def _checked_passes(passes: Any) -> int:
    number = whole_number("backward_passes_per_step", passes, "1 or more")
    if number < 1:
        raise ValueError(f"{show('backward_passes_per_step', passes)} is less than 1: give 1 or more")
    return number


def _checked_names(optimizer: torch.optim.Optimizer, named: Iterable[Any] | None) -> list[str]:
    """Return a name for every parameter."""
    if named is None:
        groups = enumerate(optimizer.param_groups)
        return [f"noname.{i}.{j}" for i, group in groups for j in range(len(group["params"]))]
    pairs = list(named)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise ValueError("named_parameters holds something else than (name, parameter): give model.named_parameters()")
    names = [name for name, _ in pairs]
    twice = sorted({str(name) for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"named_parameters has a name twice: {', '.join(twice)}: give each parameter its own")
    by_param = {id(param): name for name, param in pairs}
    params = _flat(optimizer)
    missing = sum(id(param) not in by_param for param in params)
    if missing:
        raise ValueError(
            f"named_parameters lacks {missing} of the optimizer's {len(params)} parameters: name all, or leave it out"
        )
    return [by_param[id(param)] for param in params]


def _checked_groups(groups: Any, num_groups: int, params: Sequence[torch.Tensor]) -> list[list[int]]:
    """Return groups as indices of parameters."""
    if num_groups:
        warnings.warn("num_groups is deprecated: use groups", DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    if groups is None:
        return []
    if isinstance(groups, (list, tuple)) and all(isinstance(group, (list, tuple)) for group in groups):
        index = {id(param): i for i, param in enumerate(params)}
        if any(not isinstance(param, torch.Tensor) for group in groups for param in group):
            raise ValueError("groups holds something else than parameters: give lists of parameters")
        listed = [[index[id(param)] for param in group if id(param) in index] for group in groups]
        flat = [i for group in listed for i in group]
        if len(set(flat)) < len(flat):
            raise ValueError("groups has a parameter twice: give each to one group")
        return [group for group in listed if group]
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 0:
        raise ValueError(f"{show('groups', groups)}: give a number of groups, or a list of lists of parameters")
    indices = [i for i, param in enumerate(params) if param.requires_grad]
    count = min(groups, len(indices))
    edges = [len(indices) * i // count for i in range(count + 1)] if count else [0]
    return [indices[begin:end] for begin, end in zip(edges, edges[1:])]


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = reductions.Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    """
    Return an optimizer of the same class that steps with the gradients of all ranks, by default with their average.

    Gradients are reduced while `backward` still computes others, in buckets of about 1 MiB; with `groups`, a number or
    a list of lists of parameters, those of a group together. With `backward_passes_per_step` they are added up and
    reduced after that many passes. A gradient is a view of memory that the next step writes to: clone what you keep.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    >>> isinstance(optimizer, torch.optim.SGD)
    True
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer).__name__
        raise ValueError(f"{show('optimizer', optimizer)} is a {kind}: give a torch.optim.Optimizer")
    if isinstance(optimizer, (ReducingOptimizer, AdasumOptimizer)):
        raise ValueError("the optimizer is distributed already: its gradients would be reduced twice")
    reduce_op = reductions.choose(op, None)
    passes = _checked_passes(backward_passes_per_step)
    if gradient_predivide_factor != 1.0 and reduce_op != reductions.Average:
        raise ValueError("gradient_predivide_factor needs op=hvd.Average: leave it out, or use hvd.Average")
    checked_compression(compression)
    names = _checked_names(optimizer, named_parameters)
    params = _flat(optimizer)
    parts = _checked_groups(groups, num_groups, params)
    is_member = takes_part(process_set)
    plain = type(optimizer)
    settings = {
        "compression": compression,
        "backward_passes_per_step": passes,
        "op": reduce_op,
        "gradient_predivide_factor": gradient_predivide_factor,
        "sparse_as_dense": sparse_as_dense,
    }
    again = (settings, parts, _Set(process_set))
    if reduce_op == reductions.Adasum:
        wrapped = _subclass(AdasumOptimizer, plain)
        wrapped._set_out(optimizer, names, passes, compression, is_member)
        return wrapped
    reducer = None
    if is_member:
        scale = (1.0 / gradient_predivide_factor, float(gradient_predivide_factor))
        reducer = Reducer(Reduction(reduce_op, scale, compression, sparse_as_dense, process_set), passes)
        reducer.add(list(zip(names, params)), [[params[i] for i in part] for part in parts])
    wrapped = _subclass(ReducingOptimizer, plain)
    wrapped._set_out(optimizer, names, reducer, again)
    return wrapped


def _subclass(mixin: type, plain: type) -> Any:
    """Return an object of a class that has the name and the methods of the user's."""
    made = type(plain.__name__, (mixin, plain), {"__module__": plain.__module__, "__doc__": plain.__doc__})
    return made.__new__(made)
