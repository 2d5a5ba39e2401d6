# SPDX-License-Identifier: Apache-2.0
"""
The reduction of a list of gradients, which tapes and optimizers have in common.

In a graph each gradient is an operation of its own, so that it travels while others are still being computed. Eagerly
they are all there already, and one operation for all costs less.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Callable

import tensorflow as tf

from horovod.common import membership, reductions
from horovod.common.arguments import factors, show
from horovod.common.process_sets import ProcessSet, global_process_set, id_of
from horovod.tensorflow import in_sync
from horovod.tensorflow.compression import Compression, checked_compression
from horovod.tensorflow.local_variables import key_of, path_of
from horovod.tensorflow.mpi_ops import Average
from horovod.tensorflow.naming import call_site, labels
from horovod.tensorflow.ops import allreduce, check_slices, grouped_allreduce
from horovod.tensorflow.util import split_list
from horovod.tensorflow.within import reduces_for_itself

# What makes gradients of all ranks out of those of this one.
Reduce = Callable[..., "list[Any]"]


def takes_part(process_set: ProcessSet) -> bool:
    """
    Whether this rank has somebody to reduce with: it is in the set, not alone, and no strategy does it anyway.

    In an elastic job a graph must be right for every number of ranks, so a rank that is alone reduces, too.
    """
    id_of(process_set)
    is_alone = process_set.size() == 1 and not membership.enabled()
    return bool(process_set.included()) and not is_alone and not reduces_for_itself()


def checked_groups(num_groups: int, groups: Any) -> Any:
    """Return what `groups` and the deprecated `num_groups` mean together. For the public functions to call."""
    if num_groups != 0:
        if groups is not None:
            raise ValueError("groups and num_groups are exclusive: give groups only")
        warnings.warn("num_groups is deprecated: use groups", DeprecationWarning, stacklevel=3)
        groups = num_groups
    allowed = "give None, a number of groups from 1 on, or a list of lists of variables"
    if groups is None:
        return None
    if isinstance(groups, int) and not isinstance(groups, bool):
        if groups < 1:
            raise ValueError(f"{show('groups', groups)} is too small: {allowed}")
        return groups
    if isinstance(groups, (list, tuple)) and all(isinstance(group, (list, tuple)) for group in groups):
        seen: set[int] = set()
        for variable in (variable for group in groups for variable in group):
            if key_of(variable) in seen:
                raise ValueError(f"groups: a variable is there twice: {show('variable', variable)}")
            seen.add(key_of(variable))
        return groups
    raise ValueError(f"{show('groups', groups)} cannot be used: {allowed}")


def checked_predivide(op: int, gradient_predivide_factor: Any) -> tuple[float, float]:
    """Return the factors before and after the reduction. Only an average may be divided in two steps."""
    factor = factors(gradient_predivide_factor, 1.0)[0]
    if factor == 1.0:
        return 1.0, 1.0
    if op != Average:
        raise ValueError(f"{show('gradient_predivide_factor', factor)} needs op=hvd.Average")
    if factor <= 0.0:
        raise ValueError(f"{show('gradient_predivide_factor', factor)} is too small: give a number above 0")
    return 1.0 / factor, factor


def _make_allreduce_grads_fn(
    name: str,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
) -> Reduce:
    """
    Return a function that reduces a list of gradients: `reduce(grads, variables=None, use_generic_names=True)`.

    None stays None. tf.IndexedSlices stay sparse unless `sparse_as_dense` is set. A rank that is not in the process
    set, or is alone in it, reduces nothing. `variables` are needed where `groups` names variables. Gradients are named
    by their places in the list, never by their variables: Keras numbers those differently on ranks that built other
    layers before.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> reduce = hvd._make_allreduce_grads_fn("example")
    >>> [one is None for one in reduce([tf.ones([2]), None])]
    [False, True]
    """
    op = reductions.choose(op, None)
    scale = checked_predivide(op, gradient_predivide_factor)
    checked_compression(compression)
    options = {
        "device_dense": device_dense,
        "device_sparse": device_sparse,
        "compression": compression,
        "op": op,
        "process_set": process_set,
        "ignore_name_scope": True,
    }
    dense_options = {**options, "prescale_factor": scale[0], "postscale_factor": scale[1]}

    def reduce(grads: Sequence[Any], variables: Any = None, use_generic_names: bool = True) -> list[Any]:
        grads = list(grads)
        if sparse_as_dense:
            grads = [_dense(grad) for grad in grads]
        if not takes_part(process_set):
            return grads
        sparse = [i for i, grad in enumerate(grads) if isinstance(grad, tf.IndexedSlices)]
        if sparse:
            check_slices(op)
        dense = [i for i, grad in enumerate(grads) if grad is not None and not isinstance(grad, tf.IndexedSlices)]
        prefix = call_site(name)
        checked = in_sync.watch(grads, variables, prefix, process_set) if variables is not None else nullcontext()
        # What people call the gradients; ranks that built other layers before may call them otherwise.
        paths = [path_of(variable) for variable in variables or ()]
        with checked:
            for number, members in enumerate(_members(groups, dense, variables)):
                if len(members) == 1:
                    i = members[0]
                    with labels(paths[i : i + 1]):
                        grads[i] = allreduce(grads[i], name=f"{prefix}.grad_{i}", **dense_options)
                    continue
                group_name = f"{prefix}.group_{number}"
                with labels([paths[i] for i in members] if paths else []):
                    reduced = grouped_allreduce([grads[i] for i in members], name=group_name, **dense_options)
                for i, grad in zip(members, reduced):
                    grads[i] = grad
            for i in sparse:
                with labels(paths[i : i + 1]):
                    grads[i] = allreduce(grads[i], name=f"{prefix}.grad_{i}", **options)
        return grads

    return reduce


def _dense(grad: Any) -> Any:
    return tf.convert_to_tensor(grad) if isinstance(grad, tf.IndexedSlices) else grad


def _members(groups: Any, dense: list[int], variables: Any) -> list[list[int]]:
    """Return the places of the gradients that are reduced together."""
    if not dense:
        return []
    if isinstance(groups, int):
        return [list(part) for part in split_list(dense, min(groups, len(dense)))]
    if groups is None:
        return [dense] if tf.executing_eagerly() else [[i] for i in dense]
    if variables is None:
        raise ValueError("groups names variables, and gradients came without theirs: give groups a number")
    group_of = {key_of(variable): number for number, group in enumerate(groups) for variable in group}
    together: dict[Any, list[int]] = {}
    variables = list(variables)
    for i in dense:
        together.setdefault(group_of.get(key_of(variables[i]), f"alone {i}"), []).append(i)
    return list(together.values())
