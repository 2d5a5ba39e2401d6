# SPDX-License-Identifier: Apache-2.0
"""The gradients of one optimizer on their way through the ranks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable

from horovod._keras import families
from horovod._keras.settings import NOT_KEPT, Settings
from horovod.tensorflow import twice
from horovod.tensorflow.aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.local_variables import LocalVariables, merge, split
from horovod.tensorflow.reduction import _make_allreduce_grads_fn, takes_part
from horovod.tensorflow.tape import scaled_local

# What applies gradients.
Update = Callable[["list[Any]"], Any]


class Exchange:
    """
    Reduces the gradients of one optimizer, exactly once on their way into it.

    Optimizers call each other: one that scales the loss calls the one inside. The outermost of them exchanges, so that
    all ranks make the same decision whether gradients are finite; those inside see that it has been done.
    """

    def __init__(self, settings: Settings) -> None:
        twice.look_for_marks()
        self.settings = settings
        self.local = LocalVariables()
        if settings.local_layers is not NOT_KEPT:
            self.local.add_layers(settings.local_layers)
        self._reduce = _make_allreduce_grads_fn(
            settings.name or "optimizer",
            settings.device_dense,
            settings.device_sparse,
            settings.compression,
            settings.sparse_as_dense,
            settings.op,
            settings.gradient_predivide_factor,
            settings.groups,
            settings.process_set,
        )
        self.aggregation: LocalGradientAggregationHelper | None = None
        if settings.backward_passes_per_step > 1:
            self.aggregation = LocalGradientAggregationHelper(
                settings.backward_passes_per_step,
                self.reduce,
                settings.sparse_as_dense,
                settings.average_aggregated_gradients,
            )

    def __deepcopy__(self, memo: Any) -> Exchange:
        """Return a new one for a copy of the optimizer, which has summed nothing up yet."""
        return Exchange(self.settings)

    def talks(self) -> bool:
        """Whether anything is ever sent: not by a rank that is alone, or not in the process set."""
        return takes_part(self.settings.process_set)

    def has_nothing_to_do(self) -> bool:
        """Whether gradients may go straight into the optimizer."""
        return is_done() or (self.aggregation is None and not self.talks())

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Return the gradients of all ranks; those of local variables are of this rank."""
        if self.settings.local_layers is NOT_KEPT:
            raise ValueError(
                "the optimizer was made from a configuration, which does not hold local_layers: make the plain one "
                "from it, and give it to hvd.PartialDistributedOptimizer(..., local_layers=...)"
            )
        if not self.talks():
            return list(grads)
        flags = self.local.which(variables)
        local, others = split(flags, grads)
        # Local ones are not counted in names: ranks may have different ones.
        others = self._reduce(others, split(flags, variables)[1])
        if self.settings.scale_local_gradients:
            local = scaled_local(local, self.settings.process_set)
        return merge(flags, local, others)

    def collect(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Return the gradients of all ranks; before the last of several passes, sums that must not be applied."""
        if twice.are_marked(grads, self.settings.process_set) and self.talks():
            twice.warn(self.settings.process_set)
        return (self.reduce if self.aggregation is None else self.aggregation.compute_gradients)(grads, variables)

    def apply_list(self, optimizer: Any, plain: Callable, grads: Iterable[Any], variables: Any) -> Any:
        """Exchange gradients and give them to `apply(grads, variables)` of Keras 3."""
        grads = list(grads)
        given = None if variables is None else list(variables)
        known = optimizer._trainable_variables if given is None else given
        if self.has_nothing_to_do() or len(grads) != len(known):  # the optimizer has words for the latter
            return plain(grads, given)
        return self._around(optimizer, grads, known, lambda reduced: plain(reduced, given))

    def apply_pairs(
        self, optimizer: Any, plain: Callable, pairs: Iterable[Any], args: Any, kwargs: Any, reduced: bool = False
    ) -> Any:
        """Exchange gradients, unless they have been reduced, and give them to `apply_gradients` of Keras 2."""
        if self.has_nothing_to_do():
            return plain(pairs, *args, **kwargs)
        pairs = list(pairs)
        grads, variables = [grad for grad, _ in pairs], [variable for _, variable in pairs]
        apply = self._apply if reduced else self._around
        return apply(optimizer, grads, variables, lambda grads: plain(list(zip(grads, variables)), *args, **kwargs))

    def _around(self, optimizer: Any, grads: list[Any], variables: list[Any], update: Update) -> Any:
        if self.aggregation is not None:
            families.build(optimizer, variables)
        return self._apply(optimizer, self.collect(grads, variables), variables, update)

    def _apply(self, optimizer: Any, grads: list[Any], variables: list[Any], update: Update) -> Any:
        """Call `update` with gradients that were exchanged: at once, or after the last of several passes only."""

        def apply() -> Any:
            with done():
                return update(grads)

        if self.aggregation is None:
            return apply()
        return self.aggregation.apply_gradients(apply, grads=grads, global_step=families.step_of(optimizer))


class _Progress(threading.local):
    done = False


_progress = _Progress()


def is_done() -> bool:
    """Whether an optimizer further outside has exchanged what this one gets."""
    return _progress.done


@contextlib.contextmanager
def done() -> Iterator[None]:
    """Let optimizers that are called meanwhile know."""
    before, _progress.done = _progress.done, True
    try:
        yield
    finally:
        _progress.done = before
