# SPDX-License-Identifier: Apache-2.0
"""Gradients of one optimizer on their way through the ranks, inside and outside of compiled training steps."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Callable

import keras

from horovod.common import reductions
from horovod.common.arguments import show
from horovod.common.basics import HorovodBasics
from horovod.common.exceptions import HorovodUnsupportedError
from horovod.common.process_sets import ProcessSet, global_process_set

if keras.config.backend() not in ("jax", "torch"):
    raise HorovodUnsupportedError(
        f"horovod.keras works with Keras on TensorFlow, JAX and PyTorch, and Keras runs on {keras.config.backend()}: "
        "set KERAS_BACKEND to tensorflow, jax or torch"
    )

# The module whose operations take the tensors of Keras's backend.
binding = importlib.import_module(f"horovod.{keras.config.backend()}")
Compression = binding.Compression
_basics = HorovodBasics()


@dataclasses.dataclass(frozen=True)
class Settings:
    """
    The options of `DistributedOptimizer`.

    All gradients are one operation, so `groups` changes nothing. Devices and sparse gradients are TensorFlow's.
    """

    name: str | None = None
    device_dense: str = ""
    device_sparse: str = ""
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    op: int = reductions.Average
    groups: Any = None
    process_set: ProcessSet = global_process_set

    def __post_init__(self) -> None:
        """Raise an error before anything is sent."""
        op, factor = reductions.choose(self.op, None), self.gradient_predivide_factor
        if op not in (reductions.Average, reductions.Sum):
            raise ValueError(f"{show('op', self.op)}: a Keras optimizer reduces with hvd.Average or hvd.Sum only")
        if not factor > 0:
            raise ValueError(f"{show('gradient_predivide_factor', factor)}: give a number, more than 0")
        if factor != 1 and op != reductions.Average:
            raise ValueError(f"{show('gradient_predivide_factor', factor)} needs op=hvd.Average")

    def __deepcopy__(self, memo: Any) -> Settings:
        """Return the same: copies of an optimizer mean the same process set."""
        return self


def checked_groups(num_groups: int, groups: Any) -> Any:
    """Return the groups; ValueError unless they are a number or lists."""
    for name, value in (("num_groups", num_groups), ("groups", groups or 0)):
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{name}={value}: give a number of groups, 0 or more")
    return groups or num_groups


class _Progress(threading.local):
    done = False


_progress = _Progress()


@contextlib.contextmanager
def _done() -> Iterator[None]:
    """Let optimizers that are called meanwhile know that gradients are those of all ranks."""
    before, _progress.done = _progress.done, True
    try:
        yield
    finally:
        _progress.done = before


class Exchange:
    """Reduces the gradients of one optimizer, exactly once: the outermost of optimizers that call each other does."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def talks(self) -> bool:
        """Whether anything is ever sent: not by a rank that is alone, or not in the process set."""
        members = self.settings.process_set
        return members.included() and members.size() > 1

    def reduce(self, grads: Sequence[Any], name: str) -> list[Any]:
        """Return the gradients of all ranks, as one operation; those that are None stay so."""
        present = [grad for grad in grads if grad is not None]
        if not present:
            return list(grads)
        factor = self.settings.gradient_predivide_factor
        reduced = iter(
            binding.grouped_allreduce(
                present,
                name=f"{self.settings.name or 'optimizer'}.{name}",
                compression=self.settings.compression,
                op=self.settings.op,
                prescale_factor=1 / factor,
                postscale_factor=factor,
                process_set=self.settings.process_set,
            )
        )
        return [None if grad is None else next(reduced) for grad in grads]

    def around(self, optimizer: Any, plain: Callable[[list[Any]], Any], grads: Sequence[Any]) -> Any:
        """Give `plain` the gradients of all ranks."""
        if _progress.done or not self.talks():
            return plain(list(grads))
        reduced = self.reduce(list(grads), optimizer.name)
        with _done():
            return plain(reduced)
