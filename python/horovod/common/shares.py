# SPDX-License-Identifier: Apache-2.0
"""Which samples of an epoch a rank takes: the rest of one permutation, dealt out to the ranks one by one."""

from __future__ import annotations

import numpy as np


class Shares:
    """
    The samples of one epoch among the ranks of a job whose size changes.

    Samples are taken in the order of a permutation that depends on seed and epoch alone. So what all ranks have
    processed is always a prefix of it, and its length is enough to go on at any size.
    """

    def __init__(self, count: int, shuffle: bool, seed: int) -> None:
        self._count = count
        self._shuffle = shuffle
        self._seed = seed

    def remaining(self, epoch: int, processed: int) -> list[int]:
        """Return the samples that nobody has processed yet, in order."""
        if not self._shuffle:
            return list(range(processed, self._count))
        order = np.random.default_rng([self._seed, epoch]).permutation(self._count)
        return order[processed:].tolist()


def share_of(remaining: list[int], rank: int, size: int, exact: bool) -> list[int]:
    """Return a rank's samples. Unless `exact`, the first ones are taken again so that all ranks have as many."""
    own = remaining[rank::size]
    if not exact and remaining and len(own) < -(-len(remaining) // size):
        beyond = len(own) * size + rank - len(remaining)
        own.append(remaining[beyond % len(remaining)])
    return own


def part_of(global_batch: int, rank: int, size: int) -> int:
    """Return how many samples of each global batch a rank takes."""
    if global_batch < size:
        raise ValueError(f"global_batch={global_batch} is less than the {size} ranks: each needs a sample of a batch")
    return len(range(rank, global_batch, size))


def weight_of(global_batch: int, rank: int, size: int) -> float:
    """Return what a rank's mean is multiplied by, so that the average over the ranks is the mean of the batch."""
    return part_of(global_batch, rank, size) * size / global_batch


def share_of_global_batches(order: list[int], processed: int, rank: int, size: int, global_batch: int) -> list[int]:
    """
    Return a rank's samples of one global batch after the other, from the first `processed` samples of `order` on.

    The first samples of the epoch fill up its last batch. So batches do not depend on where a job changed.
    """
    part_of(global_batch, rank, size)
    return [
        order[place % len(order)]
        for first in range(processed, len(order), global_batch)
        for place in range(first + rank, first + global_batch, size)
    ]
