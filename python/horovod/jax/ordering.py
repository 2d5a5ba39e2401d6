# SPDX-License-Identifier: Apache-2.0
"""
Operations that a program runs one after the other, as the function says them, and that JAX never removes.

JAX passes a token from one to the next, also from one program to the next. It does so for primitives with an ordered
effect. Effects are no part of JAX's public interface, so nothing but `ordered=True` needs this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax._src import core, effects
from jax.interpreters import mlir

from horovod.jax.native import TARGET, ffi

if jax.__version_info__ < (0, 5, 3):
    raise ImportError("XLA gives no tokens to functions of others before jaxlib 0.5.3")


class OrderedOperation(effects.Effect):
    """What an operation does besides its results: it takes its turn among the operations of all ranks."""

    def __str__(self) -> str:
        return "hvd"


EFFECT = OrderedOperation()
for _allowed in (
    effects.ordered_effects,
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.remat_allowed_effects,
    effects.custom_derivatives_allowed_effects,
):
    _allowed.add_type(OrderedOperation)


def lower(context: Any, operands: Sequence[Any], in_place: dict[int, int], attributes: dict[str, Any]) -> Sequence[Any]:
    """Return the results of the library's function, which takes a token and returns one besides."""
    with_token = context.replace(
        avals_in=[core.abstract_token, *context.avals_in], avals_out=[core.abstract_token, *context.avals_out]
    )
    aliases = {operand + 1: result + 1 for operand, result in in_place.items()}
    rule = ffi.ffi_lowering(TARGET, has_side_effect=True, operand_output_aliases=aliases)
    token, *results = rule(with_token, context.tokens_in.get(EFFECT), *operands, **attributes)
    context.set_tokens_out(mlir.TokenSet({EFFECT: token}))
    return results
