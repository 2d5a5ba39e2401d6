# SPDX-License-Identifier: Apache-2.0
"""
The collective operations as primitives of JAX.

Outside of jax.jit an operation runs at once, on NumPy's view of the arrays. In a compiled program it is a call of the
library's function. Unless the caller asks for order, an operation has no effect in JAX's sense, because a program with
an effect takes more than 100 µs per call instead of 15. So JAX removes an operation whose result is not used, on all
ranks alike.

Derivatives are those of the sum of all ranks' results: a rank's gradient is what its operand adds to that sum.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from horovod.common import abi, names
from horovod.common.exceptions import HorovodUnsupportedError
from horovod.jax.calls import CODES, Call, run
from horovod.jax.native import TARGET, ffi

_LINEAR = (abi.SUM, abi.AVERAGE)


def _check_types(avals: Sequence[Any], call: Call) -> None:
    for number, aval in enumerate(avals):
        if aval.dtype.name not in abi.DTYPES:
            which = f"tensors[{number}]" if call.grouped else "tensor"
            raise ValueError(
                f"{call.wire_kind}: {which} has element type {aval.dtype}, which is not supported; supported are "
                f"{', '.join(abi.DTYPES)}"
            )


def _result_shape(shape: tuple[int, ...], call: Call) -> tuple[int, ...]:
    size, index = call.numbering.size, call.numbering.index
    if call.kind == "allgather":
        return (shape[0] * size, *shape[1:])
    if call.kind == "reducescatter":
        return (shape[0] // size + (index < shape[0] % size), *shape[1:])
    if call.kind == "alltoall" and shape[0] % size:
        raise ValueError(
            f"alltoall: tensor has {shape[0]} rows, which cannot be divided among {size} ranks: in a compiled "
            "program every rank sends equal parts"
        )
    return shape


def _results(*avals: Any, call: Call) -> tuple[list[jax.core.ShapedArray], set[Any]]:
    """Return the types of the results, and the effects of the operation."""
    if not avals and not call.ordered:
        raise ValueError(
            "barrier: a compiled program keeps only what its results need: give the arrays that must wait, as in "
            "x = hvd.barrier(tensors=x, name='begin'), or ordered=True"
        )
    _check_types(avals, call)
    effects = {_ordering().EFFECT} if call.ordered else set()
    return [jax.core.ShapedArray(_result_shape(aval.shape, call), aval.dtype) for aval in avals], effects


@functools.cache
def _ordering() -> Any:
    try:
        return importlib.import_module("horovod.jax.ordering")
    except (ImportError, AttributeError) as error:
        raise HorovodUnsupportedError(
            f"ordered=True needs a part of JAX that {jax.__version__} does not have ({error}): leave it out, and make "
            "operations depend on each other's results instead"
        ) from None


def _devices(context: Any) -> int:
    """Return the number of devices that a program is compiled for."""
    axes = context.module_context.axis_context
    count = getattr(axes, "num_devices", None)
    return count if count is not None else getattr(getattr(axes, "mesh", None), "size", 1)


def _numbers(avals: Sequence[Any], call: Call) -> dict[str, Any]:
    """Return for which numbers of ranks a program is right, the same on all ranks if the program can be the same."""
    if not call.needs_numbering:
        return {"made_for_ranks": np.int64(0), "made_for_rank": np.int32(-1)}
    is_uneven = call.kind == "reducescatter" and any(aval.shape[0] % call.numbering.size for aval in avals)
    rank = np.int32(call.numbering.rank if is_uneven else -1)
    return {"made_for_ranks": call.numbering.digest(), "made_for_rank": rank}


def _lower(context: Any, *operands: Any, call: Call) -> Any:
    if call.name is None:
        raise ValueError(
            f"{call.wire_kind} in a compiled program needs a name, by which the ranks find each other: "
            f'give name="...", equal on all ranks and different from those of other operations of the program'
        )
    if _devices(context) > 1:
        raise HorovodUnsupportedError(
            f"{call.wire_kind} '{call.name}' is in a program for {_devices(context)} devices of this process, and each "
            "rank runs programs for one device: start a rank per device, or leave the array on one device"
        )
    in_place = {i: i for i in range(len(operands))} if call.kind in ("allreduce", "broadcast", "barrier") else {}
    attributes = {
        "name": names.wire_name(call.wire_kind, call.name, call.numbering.set_id).decode(),
        "op": np.int32(CODES[call.kind]),
        "grouped": np.int32(call.grouped),
        "process_set": np.int32(call.numbering.set_id),
        "only_root": np.int32(call.only_root),
        **_numbers(context.avals_in, call),
        "reduce_op": np.int32(call.reduce_op),
        "root_rank": np.int32(call.root_rank),
        "prescale": np.float64(call.scale[0]),
        "postscale": np.float64(call.scale[1]),
        "flags": np.int32(call.flags),
    }
    if call.ordered:
        return _ordering().lower(context, operands, in_place, attributes)
    rule = ffi.ffi_lowering(TARGET, has_side_effect=True, operand_output_aliases=in_place)
    return rule(context, *operands, **attributes)


def _refuse_platform(_context: Any, *_operands: Any, call: Call) -> Any:
    raise HorovodUnsupportedError(
        f"{call.wire_kind} is in a program for a device that is not the CPU, which this release does not have: compile "
        "it for the CPU with jax.default_device, or call it outside of jax.jit"
    )


def _refuse_derivative(call: Call) -> None:
    if call.kind in ("allreduce", "reducescatter") and call.reduce_op not in _LINEAR:
        raise NotImplementedError(
            f"{call.kind}: minima, maxima, products and Adasum of ranks have no gradient: use hvd.Sum or hvd.Average, "
            "or jax.lax.stop_gradient of the operand"
        )


def _primitive(kind: str, transpose: Callable[[Sequence[Any], Sequence[Any], Call], Sequence[Any]]) -> Primitive:
    """Make the primitive of an operation. `transpose` takes cotangents, the operands' types and the call."""
    primitive = Primitive(f"hvd_{kind}")
    primitive.multiple_results = True

    def jvp(operands: Sequence[Any], tangents: Sequence[Any], *, call: Call) -> tuple[Sequence[Any], Sequence[Any]]:
        _refuse_derivative(call)
        results = primitive.bind(*operands, call=call)
        if kind == "barrier":
            return results, tangents
        floats = [i for i, one in enumerate(operands) if jnp.issubdtype(jnp.result_type(one), jnp.inexact)]
        moved = primitive.bind(*(ad.instantiate_zeros(tangents[i]) for i in floats), call=call.derived("t"))
        found = dict(zip(floats, moved))
        return results, [found[i] if i in found else _no_tangent(result) for i, result in enumerate(results)]

    def transposed(cotangents: Sequence[Any], *operands: Any, call: Call) -> Sequence[Any]:
        filled = [ad.instantiate_zeros(one) for one in cotangents]
        return transpose(filled, [operand.aval for operand in operands], call)

    def batched(operands: Sequence[Any], axes: Sequence[int | None], *, call: Call) -> tuple[Sequence[Any], list[Any]]:
        if call.reduce_op == abi.ADASUM:
            raise NotImplementedError("allreduce with hvd.Adasum looks at an array as a whole: it has no jax.vmap")
        if kind in ("allreduce", "broadcast", "barrier"):  # of each element on its own
            return primitive.bind(*operands, call=call), list(axes)
        places = [axis if axis is None else 1 for axis in axes]
        moved = [one if axis is None else jnp.moveaxis(one, axis, 1) for one, axis in zip(operands, axes)]
        return primitive.bind(*moved, call=call), places

    primitive.def_impl(lambda *operands, call: run(operands, call))
    primitive.def_effectful_abstract_eval(_results)
    ad.primitive_jvps[primitive] = jvp
    ad.primitive_transposes[primitive] = transposed
    batching.primitive_batchers[primitive] = batched
    mlir.register_lowering(primitive, _refuse_platform)
    mlir.register_lowering(primitive, _lower, platform="cpu")
    return primitive


def _no_tangent(result: Any) -> Any:
    """Return the tangent of whole numbers."""
    return ad.Zero(jax.core.ShapedArray(jnp.shape(result), jax.dtypes.float0))


def _bind(kind: str, tensors: Sequence[Any], call: Call, only_root: bool = False) -> Sequence[Any]:
    """Run an operation as part of the derivative of another one."""
    if kind != call.kind:
        call = dataclasses.replace(call, kind=kind, reduce_op=abi.SUM, scale=(1.0, 1.0), flags=0, only_root=only_root)
    return PRIMITIVES[kind].bind(*tensors, call=call.derived("T"))


def _of_allreduce(cotangents: Sequence[Any], _types: Sequence[Any], call: Call) -> Sequence[Any]:
    return _bind("broadcast" if call.only_root else "allreduce", cotangents, call)


def _of_alltoall(cotangents: Sequence[Any], _types: Sequence[Any], call: Call) -> Sequence[Any]:
    return _bind(call.kind, cotangents, call)


def _of_broadcast(cotangents: Sequence[Any], _types: Sequence[Any], call: Call) -> Sequence[Any]:
    # The library makes the zeros. If the program did, XLA would make another program of it on the root.
    return _bind("allreduce", cotangents, call, only_root=True)


def _of_allgather(cotangents: Sequence[Any], types: Sequence[Any], call: Call) -> Sequence[Any]:
    for cotangent, aval in zip(cotangents, types):
        if cotangent.shape[0] != aval.shape[0] * call.numbering.size:
            raise HorovodUnsupportedError(
                f"allgather: this rank brought {aval.shape[0]} of {cotangent.shape[0]} rows, and there are gradients "
                "only if all ranks bring the same number: pad the arrays"
            )
    return _bind("reducescatter", cotangents, call)


def _of_reducescatter(cotangents: Sequence[Any], types: Sequence[Any], call: Call) -> Sequence[Any]:
    size = call.numbering.size
    for aval in types:
        if aval.shape[0] % size:
            raise HorovodUnsupportedError(
                f"reducescatter: {aval.shape[0]} rows cannot be divided among {size} ranks, and there are gradients "
                "only if they can: pad the array"
            )
    factor = call.scale[0] * call.scale[1] / (size if call.reduce_op == abi.AVERAGE else 1)
    gathered = _bind("allgather", cotangents, call)
    return gathered if factor == 1 else [one * jnp.asarray(factor, one.dtype) for one in gathered]


def _of_barrier(cotangents: Sequence[Any], _types: Sequence[Any], _call: Call) -> Sequence[Any]:
    return cotangents


PRIMITIVES = {
    "allreduce": _primitive("allreduce", _of_allreduce),
    "allgather": _primitive("allgather", _of_allgather),
    "broadcast": _primitive("broadcast", _of_broadcast),
    "alltoall": _primitive("alltoall", _of_alltoall),
    "reducescatter": _primitive("reducescatter", _of_reducescatter),
    "barrier": _primitive("barrier", _of_barrier),
}
