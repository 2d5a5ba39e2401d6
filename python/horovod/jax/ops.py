# SPDX-License-Identifier: Apache-2.0
"""
Collective operations on arrays of JAX, with the names and signatures of horovod.numpy.

Each of them works inside and outside of jax.jit. Inside, it needs a name, and every rank gives arrays of one shape. The
functions that begin with `grouped_` take any tree of arrays, and make one operation of it. With `ordered=True`, a
compiled program runs the operation after the ordered ones before it, also if nothing needs its result.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common import abi, reductions
from horovod.common.arguments import factors, name_bytes, show
from horovod.common.arguments import root_rank as checked_root
from horovod.common.arguments import splits as checked_splits
from horovod.common.exceptions import HorovodUnsupportedError
from horovod.common.library import load
from horovod.common.names import wire_name
from horovod.common.process_sets import ProcessSet, global_process_set, id_of
from horovod.jax.calls import Call, as_array
from horovod.jax.numbering import numbering_of
from horovod.jax.primitives import PRIMITIVES
from horovod.numpy import exchange as eager
from horovod.numpy.compression import Compression

_FLAGS = {Compression.none: 0, Compression.fp16: abi.WIRE_FLOAT16, Compression.bf16: abi.WIRE_BFLOAT16}


def _call(kind: str, name: str | None, process_set: ProcessSet, **more: Any) -> Call:
    if name is not None:
        name_bytes(name)
    return Call(kind, name, process_set, numbering_of(id_of(process_set)), **more)


def _array(tensor: Any) -> Any:
    """Return what JAX takes for an array, with the types that it has."""
    if isinstance(tensor, (jax.Array, np.ndarray)):
        return tensor
    return jnp.asarray(tensor)


def _rows(tensor: Any, function: str) -> Any:
    array = _array(tensor)
    if jnp.ndim(array) == 0 and function == "reducescatter":
        raise ValueError(
            "reducescatter gives each rank some of the rows, and a scalar has none: give an array with dimensions"
        )
    return jnp.reshape(array, (1,)) if jnp.ndim(array) == 0 else array


def _bind(call: Call, *tensors: Any) -> Any:
    return PRIMITIVES[call.kind].bind(*tensors, call=call)


def _label(tree: Any, call: Call) -> None:
    """Have stall reports and timelines show the places in the tree beside the names of a named group."""
    if call.name is None:
        return
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
    base = wire_name(call.wire_kind, call.name, call.numbering.set_id).decode()
    for number, path in enumerate(paths, start=1):
        full = f"{base}_{number}of{len(paths)}"
        load().hvd_label_tensor(None, full.encode("utf-8", "replace"), path.encode("utf-8", "replace"))


def _group(tree: Any, call: Call, row_wise: bool = False) -> Any:
    leaves, structure = jax.tree_util.tree_flatten(tree)
    if not leaves:
        return tree
    arrays = [_rows(leaf, call.kind) if row_wise else _array(leaf) for leaf in leaves]
    if any(isinstance(array, jax.core.Tracer) for array in arrays):
        _label(tree, call)
    return jax.tree_util.tree_unflatten(structure, _bind(call, *arrays))


def _flags(compression: Any, reduce_op: int) -> int:
    if compression not in _FLAGS:
        allowed = "hvd.Compression.none, hvd.Compression.fp16 or hvd.Compression.bf16"
        raise TypeError(f"{show('compression', compression)} cannot compress: give {allowed}")
    return 0 if reduce_op == abi.ADASUM else _FLAGS[compression]


def _reduction(
    kind: str,
    name: str | None,
    process_set: ProcessSet,
    reduce_op: int,
    scale: tuple[float, float],
    compression: Any,
    **more: Any,
) -> Call:
    flags = _flags(compression, reduce_op)
    call = _call(kind, name, process_set, reduce_op=reduce_op, scale=scale, flags=flags, **more)
    if reduce_op == abi.ADASUM and call.numbering.set_id != 0:
        raise HorovodUnsupportedError(f"process_set={process_set}: hvd.Adasum works among all ranks only")
    return call


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ordered: bool = False,
) -> jax.Array:
    """
    Return the reduction of all ranks' arrays; by default their average.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import horovod.jax as hvd
    >>> hvd.init()
    >>> jax.jit(lambda x: hvd.allreduce(x, name="weights"))(jnp.array([1.0, 2.0]))
    Array([1., 2.], dtype=float32)
    """
    reduce_op = reductions.choose(op, average)
    scale = factors(prescale_factor, postscale_factor)
    call = _reduction("allreduce", name, process_set, reduce_op, scale, compression, ordered=ordered)
    return _bind(call, _array(tensor))[0]


def grouped_allreduce(
    tensors: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ordered: bool = False,
) -> Any:
    """
    Return a tree of the reductions of all ranks' arrays at the same places. The tree has the same shape on all ranks.

    >>> import horovod.jax as hvd
    >>> hvd.init()
    >>> hvd.grouped_allreduce({"w": 1.0, "b": 2.0}, op=hvd.Max)["b"].item()
    2.0
    """
    reduce_op = reductions.choose(op, average)
    scale = factors(prescale_factor, postscale_factor)
    more = {"grouped": True, "ordered": ordered}
    return _group(tensors, _reduction("allreduce", name, process_set, reduce_op, scale, compression, **more))


def allgather(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set, ordered: bool = False
) -> jax.Array:
    """
    Return all ranks' arrays, joined along the first dimension in rank order.

    Outside of jax.jit that dimension may differ by rank.

    >>> import jax.numpy as jnp
    >>> import horovod.jax as hvd
    >>> hvd.init()
    >>> hvd.allgather(jnp.zeros((2, 3))).shape == (2 * hvd.size(), 3)
    True
    """
    return _bind(_call("allgather", name, process_set, ordered=ordered), _rows(tensor, "allgather"))[0]


def grouped_allgather(
    tensors: Any, name: str | None = None, process_set: ProcessSet = global_process_set, ordered: bool = False
) -> Any:
    """Return a tree with `allgather` of each array of a tree."""
    return _group(tensors, _call("allgather", name, process_set, grouped=True, ordered=ordered), row_wise=True)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ordered: bool = False,
) -> jax.Array:
    """
    Return root_rank's array on every rank. root_rank is a rank of the whole job, also for a process set.

    >>> import jax.numpy as jnp
    >>> import horovod.jax as hvd
    >>> hvd.init()
    >>> hvd.broadcast(jnp.array([1, 2]), root_rank=0)
    Array([1, 2], dtype=int32)
    """
    call = _call("broadcast", name, process_set, root_rank=checked_root(root_rank), ordered=ordered)
    return _bind(call, _array(tensor))[0]


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ordered: bool = False,
) -> Any:
    """
    Send parts of the array to all ranks, and return what they sent to this one, in rank order.

    The first dimension is divided evenly. With `splits`, the rows for every rank, which works outside of jax.jit only,
    the result is a pair: the array and the rows from every rank.

    >>> import jax.numpy as jnp
    >>> import horovod.jax as hvd
    >>> hvd.init()
    >>> hvd.alltoall(jnp.arange(hvd.size())).shape == (hvd.size(),)
    True
    """
    call = _call("alltoall", name, process_set, ordered=ordered)
    array = _rows(tensor, "alltoall")
    if splits is None:
        return _bind(call, array)[0]
    if isinstance(array, jax.core.Tracer) or isinstance(splits, jax.core.Tracer):
        raise HorovodUnsupportedError(
            "alltoall with splits has a result whose shape only the other ranks know, and a compiled program needs it "
            "before: leave splits out, or call alltoall outside of jax.jit"
        )
    received, rows = eager.alltoall(as_array(array, call), checked_splits(splits), name, process_set)
    return jnp.asarray(received), rows


def reducescatter(
    tensor: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = reductions.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ordered: bool = False,
) -> jax.Array:
    """
    Return this rank's rows of the reduction of all ranks' arrays: `Average` or `Sum`.

    The first dimension is divided among the ranks in rank order. If the rows cannot be divided evenly, the first ranks
    have one row more.

    >>> import jax.numpy as jnp
    >>> import horovod.jax as hvd
    >>> hvd.init()
    >>> hvd.reducescatter(jnp.ones((hvd.size(), 2)))
    Array([[1., 1.]], dtype=float32)
    """
    reduce_op = reductions.choose(op, None)
    scale = factors(prescale_factor, postscale_factor)
    call = _reduction("reducescatter", name, process_set, reduce_op, scale, compression, ordered=ordered)
    return _bind(call, _rows(tensor, "reducescatter"))[0]


def grouped_reducescatter(
    tensors: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = reductions.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ordered: bool = False,
) -> Any:
    """Return a tree with `reducescatter` of each array of a tree."""
    reduce_op = reductions.choose(op, None)
    scale = factors(prescale_factor, postscale_factor)
    more = {"grouped": True, "ordered": ordered}
    call = _reduction("reducescatter", name, process_set, reduce_op, scale, compression, **more)
    return _group(tensors, call, row_wise=True)


def barrier(
    process_set: ProcessSet = global_process_set, tensors: Any = None, name: str | None = None, ordered: bool = False
) -> Any:
    """
    Return when every rank of the set has called it.

    Give a tree of arrays as `tensors` to have it returned: in a compiled program, what is computed from these arrays
    waits for the barrier, and nothing else does. With `ordered=True` the ordered operations after it wait, too.

    >>> import horovod.jax as hvd
    >>> hvd.init()
    >>> hvd.barrier()
    """
    leaves, structure = jax.tree_util.tree_flatten(tensors)
    results = _bind(_call("barrier", name, process_set, ordered=ordered), *(_array(leaf) for leaf in leaves))
    return jax.tree_util.tree_unflatten(structure, results)
