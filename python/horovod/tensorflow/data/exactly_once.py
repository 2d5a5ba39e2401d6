# SPDX-License-Identifier: Apache-2.0
"""
Every element once, although workers and dispatchers die: ids in the elements, a ledger here, and repair rounds.

TensorFlow's promise is at most once: what a worker held when it died is lost. Here every rank sends the ids of its own
elements, notes which ones come back, drops what comes twice, and sends the missing ones again when a pass has ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from horovod.tensorflow.data import checks
from horovod.tensorflow.data.along import read_along
from horovod.tensorflow.data.config import TfDataServiceConfig
from horovod.tensorflow.data.ledger import Ledger, batch_sizes

if TYPE_CHECKING:
    from horovod.tensorflow.data.reader import Reader

_LARGEST_GROUP = 32
_GROUPS_PER_WORKER = 4


class ExactlyOnce:
    """One pass over this rank's elements: iterate over it once. Thread safety: one thread at a time."""

    def __init__(self, ledger: Ledger, sizes: list[int], fn: Callable[[Any], Any], group: int, reader: Reader) -> None:
        self._ledger = ledger
        self._sizes = sizes
        self._fn = fn
        self._group = group
        self._reader = reader
        self._begun = False
        self.rounds = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[tuple[Any, np.ndarray]]:
        """Yield (batch, ids): as many batches as every other rank does."""
        if self._begun:
            raise RuntimeError("exactly_once: one pass is all that this object gives; make a new one for each epoch")
        self._begun = True
        sizes = iter(self._sizes)
        wanted = next(sizes, 0)
        waiting = _Waiting()
        while len(missing := self._ledger.missing()):
            self.rounds += 1
            for ids, batch in self._pass(missing):
                fresh = self._ledger.arrived(ids)
                waiting.add(ids, batch, fresh)
                while wanted and waiting.count >= wanted:
                    yield waiting.take(wanted)
                    wanted = next(sizes, 0)

    def done(self, ids: Any) -> None:
        """
        Mark elements as used, after the step that used them.

        ValueError for an id that was not given out, or that was marked before.
        """
        self._ledger.mark(np.asarray(ids, np.int64))

    def marks(self) -> np.ndarray:
        """Return the ids that this rank has marked: those of all ranks together are `done` after a restart."""
        return self._ledger.marked()

    def report(self) -> str:
        """Return one line: how many elements were used, and how many were sent again."""
        return self._ledger.text(self.rounds)

    def _pass(self, ids: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
        import tensorflow as tf

        from horovod.tensorflow.data.send import distribute

        fn, group = self._fn, self._group

        def elements(part: Any) -> Any:
            each = tf.data.Dataset.from_tensor_slices(part).filter(lambda one: one != filler)
            each = each.map(lambda one: (one, fn(one)), num_parallel_calls=tf.data.AUTOTUNE)
            return each.batch(group)

        # The source's elements are what the dispatcher hands out, a call for each of them: groups, not ids.
        filler = int(ids.min()) - 1
        parts = np.full(-(-len(ids) // group) * group, filler)
        parts[: len(ids)] = ids
        data = tf.data.Dataset.from_tensor_slices(parts.reshape(-1, group)).flat_map(elements)
        list(checks.notes(data, self._reader.config, "distributed_epoch", False))  # refuses Python in `fn`
        name = self._reader.pass_name()
        for found, batch in read_along(lambda: distribute(data, self._reader, "distributed_epoch", name)):
            yield found.numpy(), batch


class _Waiting:
    """Elements that have come and are not given out yet, in pieces as they came."""

    def __init__(self) -> None:
        self.count = 0
        self._pieces: list[tuple[np.ndarray, Any]] = []

    def add(self, ids: np.ndarray, batch: Any, fresh: np.ndarray) -> None:
        import tensorflow as tf

        if not fresh.all():
            ids = ids[fresh]
            batch = tf.nest.map_structure(lambda part: tf.boolean_mask(part, fresh), batch)
        if len(ids):
            self._pieces.append((ids, batch))
            self.count += len(ids)

    def take(self, count: int) -> tuple[Any, np.ndarray]:
        import tensorflow as tf

        taken: list[tuple[np.ndarray, Any]] = []
        left = count
        while left:
            ids, batch = self._pieces.pop(0)
            if len(ids) > left:
                cut = left
                self._pieces.insert(0, (ids[cut:], tf.nest.map_structure(lambda part: part[cut:], batch)))  # noqa: B023
                ids, batch = ids[:cut], tf.nest.map_structure(lambda part: part[:cut], batch)  # noqa: B023
            taken.append((ids, batch))
            left -= len(ids)
        self.count -= count
        if len(taken) == 1:
            return taken[0][1], taken[0][0]
        batch = tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *(one for _, one in taken))
        return batch, np.concatenate([ids for ids, _ in taken])


def exactly_once(
    ids: int | Sequence[int] | np.ndarray,
    fn: Callable[[Any], Any],
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int,
    batch_size: int = 1,
    group: int | None = None,
    done: Sequence[int] | np.ndarray = (),
) -> ExactlyOnce:
    """
    Return this rank's share of an epoch in which every element is used once, although servers are killed meanwhile.

    `ids` are the elements of the epoch in the order to take, the same on all ranks; a number n stands for 0 to n - 1.
    `fn` makes an element of its id, in TensorFlow and without side effects, because it runs again for what was lost.
    Iterating gives (batch, ids), equally often on all ranks; call `done(ids)` after the step. `group` ids travel
    together. `done` are ids that an earlier run has marked: those of all its ranks, on every rank.

    >>> import threading
    >>> import tensorflow as tf
    >>> from horovod.tensorflow.data.compute_service import (
    ...     ComputeService, TfDataServiceConfig, compute_worker_fn, exactly_once)
    >>> with ComputeService(1, 1, b"0123456789abcdei") as service:
    ...     config = TfDataServiceConfig(1, 1, "compute", service.addresses(), b"0123456789abcdei", timeout=600)
    ...     compute = threading.Thread(target=compute_worker_fn, args=(config, 0, 1))
    ...     compute.start()
    ...     epoch = exactly_once(10, lambda one: one * one, config, rank=0, size=1, batch_size=4)
    ...     total = 0
    ...     for batch, ids in epoch:
    ...         total += int(tf.reduce_sum(batch))
    ...         epoch.done(ids)
    ...     config.compute_client().shutdown()
    ...     compute.join()
    >>> total, epoch.report().split(";")[0]
    (285, '10 of 10 elements, each once')
    """
    from horovod.tensorflow.data.reader import reader
    from horovod.tensorflow.data.send import check_size

    if compute_config.dispatcher_side == "training":
        raise RuntimeError(
            "exactly_once: the dispatchers of this compute job run in the training job; start the compute job without "
            "--dispatcher-side training"
        )
    check_size(compute_config, size)
    if not 0 <= rank < size:
        raise ValueError(f"rank={rank} and size={size}: the rank is from 0 to size - 1")
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: give a whole number from 1 on")
    everything = np.arange(ids) if isinstance(ids, int) else np.asarray(ids)
    if everything.ndim != 1 or not np.issubdtype(everything.dtype, np.integer):
        raise ValueError(f"ids of type {everything.dtype} and shape {everything.shape}: give whole numbers in one row")
    everything = everything.astype(np.int64)
    if len(np.unique(everything)) != len(everything):
        raise ValueError("ids: some number is in it twice, and an id is used once")
    left = everything[~np.isin(everything, np.asarray(done, np.int64))]
    own = left[rank::size]
    sizes = batch_sizes(len(left), batch_size, rank, size)
    own_reader = reader(compute_config, rank, size)
    _agree(own_reader, size, everything, np.sort(np.asarray(done, np.int64)), batch_size)
    workers = compute_config.workers_per_dispatcher
    if group is None:
        group = min(_LARGEST_GROUP, max(1, len(own) // (workers * _GROUPS_PER_WORKER)))
    if group < 1:
        raise ValueError(f"group={group}: give a whole number from 1 on")
    return ExactlyOnce(Ledger(own), sizes, fn, group, own_reader)


def _agree(own: Reader, size: int, ids: np.ndarray, done: np.ndarray, batch_size: int) -> None:
    """Raise ValueError unless all ranks share out the same elements: otherwise some would come twice, or never."""
    digest = hashlib.sha256(b" ".join([str(batch_size).encode(), ids.tobytes(), done.tobytes()])).hexdigest()
    try:
        own.agree(f"exactly_once {size}", digest)
    except ValueError as error:
        raise ValueError(
            f"exactly_once: {error} in ids, done or batch_size. Give all ranks the same: "
            "np.concatenate(hvd.allgather_object(batches.marks())) unites the marks of an earlier run"
        ) from None
