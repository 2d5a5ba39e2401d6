# SPDX-License-Identifier: Apache-2.0
"""
Keras optimizers by family: those of Keras 3, those of Keras 2, and the legacy ones of Keras 2.

They are told apart by what they can do. Which package they come from does not matter: Keras 2 is `tf_keras` beside
newer releases of TensorFlow, and `keras` beside older ones.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from horovod.common.arguments import show


class Family(enum.Enum):
    """How an optimizer applies gradients."""

    KERAS3 = "apply(grads, variables)"
    KERAS2 = "apply_gradients(pairs, skip_gradients_aggregation=...)"
    LEGACY = "apply_gradients(pairs, experimental_aggregate_gradients=...)"


def family_of(optimizer: Any) -> Family:
    """Return the family of an optimizer; TypeError for anything else."""
    kind = type(optimizer)
    if hasattr(kind, "apply_gradients"):
        if hasattr(kind, "stateless_apply"):
            return Family.KERAS3
        if hasattr(kind, "aggregate_gradients"):
            return Family.KERAS2
        if hasattr(kind, "_aggregate_gradients"):
            return Family.LEGACY
    raise TypeError(
        f"{show('optimizer', optimizer)} is no Keras optimizer: give an object such as keras.optimizers.SGD(0.01)"
    )


def library_of(optimizer_class: type) -> ModuleType:
    """Return the Keras whose optimizer this is: the module `keras` or `tf_keras`."""
    # Optimizers of users and of other packages have a base class that is Keras's.
    roots = [base.__module__.partition(".")[0] for base in optimizer_class.__mro__]
    return importlib.import_module(next(root for root in roots if root in ("keras", "tf_keras")))


def chain_of(optimizer: Any) -> Iterator[Any]:
    """Return the optimizer, and those inside it that it scales the loss for."""
    while optimizer is not None:
        yield optimizer
        optimizer = getattr(optimizer, "inner_optimizer", None)


def is_built(optimizer: Any) -> bool:
    """Whether the optimizer has state for variables of a model."""
    for one in chain_of(optimizer):
        if family_of(one) is Family.LEGACY:
            if one.weights:
                return True
        elif getattr(one, "built", False) or getattr(one, "_built", False):
            return True
    return False


def build(optimizer: Any, variables: list[Any]) -> None:
    """Make the optimizer's state now, if it is not there: variables cannot be made inside of a condition."""
    import tensorflow as tf

    if is_built(optimizer):
        return
    with tf.init_scope():
        if family_of(optimizer) is Family.LEGACY:
            optimizer._create_all_weights(variables)
        else:
            optimizer.build(variables)


def step_of(optimizer: Any) -> Any:
    """Return the variable in which the optimizer counts its calls."""
    innermost = list(chain_of(optimizer))[-1]
    # Keras 3 shows a quotient instead where gradients are accumulated.
    return innermost._iterations if family_of(innermost) is Family.KERAS3 else innermost.iterations


def variables_of(optimizer: Any) -> list[Any]:
    """Return the optimizer's variables: a list in some families, what a method returns in others."""
    found = getattr(optimizer, "variables", [])
    return list(found if isinstance(found, (list, tuple)) else found())
