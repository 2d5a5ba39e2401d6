# SPDX-License-Identifier: Apache-2.0
"""Gives all ranks the arrays of one rank, and compares those of all ranks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from horovod.common import abi, batch, in_sync
from horovod.common.arguments import name_bytes
from horovod.common.arguments import root_rank as checked_root
from horovod.common.exceptions import HorovodUnsupportedError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.numpy.adapter import as_input, new_output
from horovod.numpy.operations import broadcasting

_ADVICE = (
    "Every rank must begin with the same values: call params = hvd.broadcast_parameters(params, root_rank=0) before "
    "the first step"
)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _values(leaf: Any, function: str) -> np.ndarray:
    if isinstance(leaf, jax.core.Tracer):
        raise HorovodUnsupportedError(
            f"{function} is inside of a compiled program: call it outside of jax.jit, before the first step"
        )
    return as_input(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _arrays(tree: Any, function: str) -> list[tuple[str, Any, np.ndarray]]:
    """Return the place, the leaf and the values of each array of a tree."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path), leaf, _values(leaf, function)) for path, leaf in leaves]


def _like(leaf: Any, values: np.ndarray) -> Any:
    if isinstance(leaf, (bool, int, float, complex)):
        return type(leaf)(values.item())
    if not isinstance(leaf, jax.Array):
        return values
    if _is_key(leaf):
        return jax.random.wrap_key_data(values, impl=jax.random.key_impl(leaf))
    return jax.device_put(values, leaf.sharding)


def broadcast_parameters(
    params: Any, root_rank: int = 0, name: str = "parameters", process_set: ProcessSet = global_process_set
) -> Any:
    """
    Return root_rank's tree of arrays on every rank: parameters, the state of an optimizer, keys of jax.random.

    The trees of all ranks have the same places and shapes. Nothing is sent unless every array can be.

    >>> import jax.numpy as jnp
    >>> import horovod.jax as hvd
    >>> hvd.init()
    >>> hvd.broadcast_parameters({"w": jnp.zeros(2), "epoch": 3}, root_rank=0)
    {'epoch': 3, 'w': Array([0., 0.], dtype=float32)}
    """
    root = checked_root(root_rank)
    name_bytes(name)
    items: list[batch.Item] = []
    results = []
    for path, leaf, values in _arrays(params, "broadcast_parameters"):
        # Types that the engine does not compute with travel as their bytes.
        sent = values if values.dtype.name in abi.DTYPES else values.reshape(-1).view(np.uint8)
        received = new_output(sent)
        operation = broadcasting(sent, received, root, process_set).named("broadcast", name + path)
        items.append((operation, (sent, received)))
        results.append((leaf, received.view(values.dtype).reshape(values.shape)))
    batch.run_all(items)
    structure = jax.tree_util.tree_structure(params)
    return jax.tree_util.tree_unflatten(structure, [_like(leaf, values) for leaf, values in results])


def check_in_sync(params: Any, process_set: ProcessSet = global_process_set) -> None:
    """
    Compare a tree of arrays among the ranks by checksums.

    If they differ, every rank of the set raises HorovodSyncError, which names the first array that differs and the
    ranks. Every rank of the set calls it with a tree of the same places.

    >>> import jax.numpy as jnp
    >>> import horovod.jax as hvd
    >>> hvd.init()
    >>> hvd.check_in_sync({"w": jnp.zeros(2)})
    """
    arrays = [(path, lambda values=values: values) for path, _, values in _arrays(params, "check_in_sync")]
    in_sync.check_in_sync(arrays, "check_in_sync", process_set, _ADVICE)
