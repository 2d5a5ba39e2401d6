# SPDX-License-Identifier: Apache-2.0
"""Small helpers that programs written for Horovod import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common import reductions


def _executing_eagerly() -> bool:
    """Whether code runs eagerly here, so neither inside a tf.function nor in a graph."""
    return tf.executing_eagerly()


def _make_subgraph(function: Callable) -> Callable:
    return tf.function(function)


def _cache(function: Callable) -> Callable:
    """Remember results by arguments."""
    results: dict[tuple, Any] = {}

    def cached(*arguments: Any) -> Any:
        key = (*arguments, _executing_eagerly())
        if key not in results:
            results[key] = function(*arguments)
        return results[key]

    return cached


def split_list(items: Sequence[Any], number: int) -> list[Sequence[Any]]:
    """
    Cut a list into `number` parts whose lengths differ by at most one.

    >>> split_list([1, 2, 3, 4, 5], 2)
    [[1, 2, 3], [4, 5]]
    """
    length, longer = divmod(len(items), number)
    parts, begin = [], 0
    for index in range(number):
        end = begin + length + (1 if index < longer else 0)
        parts.append(items[begin:end])
        begin = end
    return parts


def handle_average_backwards_compatibility(op: int | None, average: bool | None) -> int:
    """Return the reduction that `op` and the deprecated `average` mean together."""
    return reductions.choose(op, average)


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Whether a number of ranks is a power of two. Adasum works here for every number of ranks."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def gpu_available(ext_base_name: str = "", verbose: bool = False) -> bool:
    """Whether TensorFlow sees a GPU."""
    return bool(tf.config.list_physical_devices("GPU"))


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Do nothing: for programs that ask whether a framework's extension was compiled. There is none to compile here."""


class Ref:
    """A variable as the key of a table, by identity: variables of Keras 3 are no keys themselves."""

    def __init__(self, variable: Any) -> None:
        self.variable = variable

    def deref(self) -> Any:
        """Return the variable."""
        return self.variable

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and self.variable is other.variable

    def __hash__(self) -> int:
        return id(self.variable)


def vars_to_refs(variables: Any) -> Any:
    """Return keys for variables, one or many."""
    if isinstance(variables, (list, tuple)):
        return tuple(vars_to_refs(variable) for variable in variables)
    return Ref(variables)


def refs_to_vars(refs: Any) -> Any:
    """Return the variables of keys."""
    if isinstance(refs, (list, tuple)):
        return [refs_to_vars(ref) for ref in refs]
    return refs.deref() if hasattr(refs, "deref") else refs
