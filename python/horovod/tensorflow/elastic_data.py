# SPDX-License-Identifier: Apache-2.0
"""The elements of a tf.data.Dataset among ranks whose number changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from horovod.common.arguments import show
from horovod.common.basics import HorovodBasics
from horovod.common.elastic_sampler import positive
from horovod.common.shares import part_of, weight_of

_basics = HorovodBasics()
_SEED = 7_919  # of the graph, so that the order does not depend on tf.random.set_seed


class Shard:
    """How one data set is shared; a state knows its newest one, and callbacks count samples by it."""

    def __init__(self, state: Any, count: int, batch_size: int | None, global_batch: int | None) -> None:
        self._state = state
        self._count = count  # of elements; negative: unknown
        self._batch_size = batch_size
        self._global_batch = global_batch

    def done_after(self, processed: int, steps: int) -> int | None:
        """Return how many elements are processed after more steps; None if the size of a step is not known."""
        step = self._step()
        return None if step is None else self.clipped(processed + steps * step)

    def clipped(self, processed: int) -> int:
        """Return a number of elements that is no greater than that of the data set."""
        return processed if self._count < 0 else min(processed, self._count)

    def steps_left(self) -> int | None:
        """Return how many steps this epoch still has; None if that is not known."""
        step = self._step()
        if step is None or self._count < 0:
            return None
        return -(-(self._count - self.clipped(self._state.processed_num)) // step)

    def _step(self) -> int | None:
        if self._global_batch is not None:
            return self._global_batch
        return None if self._batch_size is None else self._batch_size * _basics.size()


def shard(
    dataset: tf.data.Dataset,
    state: Any,
    batch_size: int | None = None,
    shuffle: int = 0,
    seed: int = 0,
    exact: bool = False,
    global_batch: int | None = None,
) -> tf.data.Dataset:
    """
    Return this rank's elements of the rest of an epoch, in a job whose size changes.

    `state.processed_num` says how many elements all ranks together have processed in this epoch, and is read whenever
    the result is iterated. In a loop, add `batch_size * hvd.size()` to it after each step and set it to 0 after an
    epoch; with `fit`, UpdateBatchStateCallback does that. `dataset` must have the same order on every rank. `shuffle`
    is the size of a buffer in which elements are shuffled, in an order that depends on `seed` and `state.epoch` alone.

    If the elements cannot be shared equally, the first ones are taken twice, so that every rank has as many batches.
    With `exact`, nothing is taken twice; ranks that run out call `hvd.join`. With `global_batch` in place of
    `batch_size`, a step of all ranks together has that many elements whatever the number of ranks is; each batch (x, y)
    then is (x, y, weights), where `weights` are those of the samples in the mean of the global batch.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> state = hvd.elastic.TensorFlowState([tf.Variable(0.0)], epoch=0, processed_num=4)
    >>> [batch.numpy().tolist() for batch in hvd.elastic.shard(tf.data.Dataset.range(9), state, batch_size=3)]
    [[4, 5, 6], [7, 8]]
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(f"{show('dataset', dataset)} is no tf.data.Dataset: see tf.data.Dataset.from_tensor_slices")
    for name in ("processed_num", *(["epoch"] if shuffle else [])):
        if not hasattr(state, name):
            raise ValueError(f"the state has no {name}: make it with {name}=0")
    if global_batch is not None and (exact or batch_size is not None):
        raise ValueError("global_batch: give it without batch_size and exact; each rank's part follows from it")
    batch_size = None if batch_size is None else positive("batch_size", batch_size)
    global_batch = None if global_batch is None else positive("global_batch", global_batch)
    count = int(dataset.cardinality())
    if count < 0 and not exact:
        raise ValueError(
            "the data set does not know its number of elements: give it by "
            "dataset.apply(tf.data.experimental.assert_cardinality(n)), or give exact=True"
        )
    state.__dict__["_shard"] = Shard(state, count, batch_size, global_batch)

    def rest(place: tf.Tensor) -> tf.data.Dataset:
        done, epoch, rank, size = (place[number] for number in range(4))
        whole = dataset
        if shuffle:
            tf.compat.v1.get_default_graph().seed = _SEED
            whole = dataset.shuffle(shuffle, seed=seed + 1_000_003 * epoch, reshuffle_each_iteration=False)
        left = whole.skip(done)
        if not exact:
            # The first elements of the epoch fill up a global batch, so that it does not depend on where a job changed.
            again, multiple = (left, size) if global_batch is None else (whole, np.int64(global_batch))
            filled = tf.maximum(count - done + multiple - 1, 0) // multiple * multiple
            left = left.concatenate(again.repeat()).take(filled)
        if global_batch is None:
            return left.shard(size, rank)
        mine = left.enumerate().filter(lambda number, _: number % global_batch % size == rank)
        return mine.map(lambda _, element: element)

    def place() -> np.ndarray:
        epoch = state.epoch if shuffle else 0
        return np.array([state.processed_num, epoch, _basics.rank(), _basics.size()], np.int64)

    def now(_: tf.Tensor) -> tf.data.Dataset:
        return rest(tf.ensure_shape(tf.numpy_function(place, [], tf.int64), [4]))

    mine = tf.data.Dataset.from_tensors(0).flat_map(now)
    if global_batch is not None:
        part = part_of(global_batch, _basics.rank(), _basics.size())
        return mine.batch(part).map(lambda *batch: _weighted(batch, global_batch))
    return mine if batch_size is None else mine.batch(batch_size)


def _weighted(batch: tuple, global_batch: int) -> Any:
    if len(batch) > 2:
        raise ValueError("global_batch: elements must be x or (x, y), because the third part of a batch is its weights")
    weight = weight_of(global_batch, _basics.rank(), _basics.size())
    rows = tf.shape(tf.nest.flatten(batch)[0])[:1]
    return (*batch, *([None] if len(batch) == 1 else []), tf.fill(rows, tf.constant(weight, tf.float32)))
