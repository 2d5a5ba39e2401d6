# SPDX-License-Identifier: Apache-2.0
"""The samples of a rank in a job whose size changes, for programs that address samples by their indices."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

from horovod.common.arguments import show, whole_number
from horovod.common.basics import HorovodBasics
from horovod.common.shares import Shares, part_of, share_of, share_of_global_batches, weight_of

_basics = HorovodBasics()


class ElasticSampler:
    """
    Deals the samples of a data set out to the ranks, and goes on after a change of the job with those that are left.

    Give it to the state. Call `record_batch` after each batch, and `set_epoch` with the next number at the end of an
    epoch. If the samples cannot be shared equally, the first ones are taken twice, so that every rank has as many
    batches. With `exact`, nothing is taken twice; ranks that run out call `hvd.join`. With `global_batch`, a step of
    all ranks together has that many samples whatever the number of ranks is: take batches of `batch_size` samples, and
    multiply the loss of a batch by `weight`.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> sampler = hvd.elastic.ElasticSampler(range(5), shuffle=False)
    >>> list(sampler)
    [0, 1, 2, 3, 4]
    >>> sampler.record_batch(0, 2)
    >>> sampler.reset()
    >>> list(sampler)
    [2, 3, 4]
    """

    def __init__(
        self,
        dataset: Sized,
        shuffle: bool = True,
        seed: int = 0,
        exact: bool = False,
        global_batch: int | None = None,
    ) -> None:
        if not hasattr(dataset, "__len__"):
            raise TypeError(f"{show('dataset', dataset)} has no length, so it cannot be shared by its indices")
        if global_batch is not None and exact:
            raise ValueError("exact=True and global_batch: give one of them; global batches are always complete")
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.exact = exact
        self.global_batch = None if global_batch is None else positive("global_batch", global_batch)
        self.epoch = 0
        self.processed_num = 0  # samples of this epoch that all ranks together have processed
        self.remaining_indices: list[int] = []
        self.num_replicas = self.rank = self.num_samples = self.total_size = 0
        self._shares = Shares(len(dataset), shuffle, seed)
        self.reset()

    @property
    def batch_size(self) -> int:
        """How many samples of a global batch this rank takes."""
        return part_of(self._need_global_batch("batch_size"), self.rank, self.num_replicas)

    @property
    def weight(self) -> float:
        """The factor of this rank's mean loss with which the average over the ranks is that of the global batch."""
        return weight_of(self._need_global_batch("weight"), self.rank, self.num_replicas)

    def _need_global_batch(self, name: str) -> int:
        if self.global_batch is None:
            raise ValueError(f"{name} is known only for a sampler with global_batch=: the batch of all ranks together")
        return self.global_batch

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, with another order of the samples."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Note that every rank has processed a batch. `batch_idx` is for programs that give it."""
        size = whole_number("batch_size", batch_size, "the number of samples of a rank's batch")
        step = size * self.num_replicas if self.global_batch is None else self.global_batch
        self.processed_num = min(self.processed_num + step, len(self.dataset))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where a sampler was when it gave its `state_dict`."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def state_dict(self) -> dict[str, Any]:
        """Return where this sampler is; the same on every rank."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def reset(self) -> None:
        """Deal out the samples that are left to the ranks that there are now."""
        self.num_replicas = _basics.size()
        self.rank = _basics.rank()
        self.remaining_indices = self._shares.remaining(self.epoch, self.processed_num)
        place = (self.rank, self.num_replicas)
        if self.global_batch is not None:
            order = self._shares.remaining(self.epoch, 0)
            self._own = share_of_global_batches(order, self.processed_num, *place, self.global_batch)
            self.total_size = -(-len(self.remaining_indices) // self.global_batch) * self.global_batch
        else:
            self._own = share_of(self.remaining_indices, *place, self.exact)
            self.total_size = len(self.remaining_indices) if self.exact else len(self._own) * self.num_replicas
        self.num_samples = len(self._own)

    def __iter__(self) -> Iterator[int]:
        return iter(self._own)

    def __len__(self) -> int:
        return self.num_samples


def positive(name: str, value: Any) -> int:
    """Return a whole number from 1 on; ValueError names the argument."""
    number = whole_number(name, value, "a whole number from 1 on")
    if number < 1:
        raise ValueError(f"{show(name, value)} is too small: give 1 or more")
    return number
