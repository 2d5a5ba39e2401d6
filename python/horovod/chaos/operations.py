# SPDX-License-Identifier: Apache-2.0
"""
Random operations whose results are known beforehand.

Inputs are small whole numbers, so that sums are exact in every element type and any order, and the right result of each
operation follows from its number alone. All ranks make the same list from the seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

import horovod.numpy as hvd

DTYPES = tuple(
    np.dtype(name) for name in ("uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64")
)
FLOATS = DTYPES[-3:]
REDUCTIONS = {"sum": hvd.Sum, "average": hvd.Average, "min": hvd.Min, "max": hvd.Max, "product": hvd.Product}
WEIGHTS = {
    "allreduce": 40,
    "allgather": 12,
    "broadcast": 12,
    "alltoall": 12,
    "reducescatter": 12,
    "grouped_allreduce": 6,
    "grouped_allgather": 3,
    "grouped_reducescatter": 3,
}
# Names that keep their meaning for the whole generation, so that later uses need no negotiation.
FIXED_NAMES = 24
SMALL, LARGE, HUGE = 64 << 10, 512 << 10, 2 << 20
# Inputs begin at different places of one array, which has this much more than the largest.
_SLACK = 1024
_COLUMNS = 3
# Of one rank in an allgather or alltoall.
_MOST_ROWS = 32


@dataclass(frozen=True)
class Op:
    """One operation, the same on all ranks."""

    kind: str
    dtype: np.dtype
    counts: tuple[int, ...]  # elements; of a row for allgather and alltoall, of every member for a group
    reduction: str
    set_index: int
    root: int
    name: str = ""
    index: int = 0

    @property
    def single(self) -> str:
        """The kind of a group's members, else its own."""
        return self.kind.replace("grouped_", "")


class Maker:
    """Makes the list, window by window. `sets` are lists of ranks, the first one of all; it may change meanwhile."""

    def __init__(self, seed: str, sets: list[list[int]]) -> None:
        self.seed = seed
        self.sets = sets
        self.initial_sets = len(sets)
        self.fixed = [self._meaning(random.Random(f"{seed} name {i}"), self.initial_sets) for i in range(FIXED_NAMES)]

    def window(self, number: int, first: int, count: int, sets: int) -> list[Op]:
        """Make the operations `first` and following, on the first so many sets. No name is there twice."""
        rng = random.Random(f"{self.seed} window {number}")
        names = rng.sample(range(FIXED_NAMES), FIXED_NAMES)
        ops = []
        for i in range(count):
            if rng.random() < 0.6 and i < len(names):
                op, name = self.fixed[names[i]], f"fixed.{names[i]}"
            else:
                op, name = self._meaning(rng, sets), f"new.{first + i}"
            ops.append(replace(op, name=name, index=first + i))
        return ops

    def sums(self, number: int, first: int, count: int) -> list[Op]:
        """Make operations that ranks which have joined can take part in."""
        rng = random.Random(f"{self.seed} sums {number}")
        ops = []
        for i in range(count):
            dtype, reduction = rng.choice(DTYPES), rng.choice(("sum", "min", "max"))
            ops.append(Op("allreduce", dtype, (rng.randint(1, 4096),), reduction, 0, 0, f"sum.{i}", first + i))
        return ops

    def _meaning(self, rng: random.Random, sets: int) -> Op:
        kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        grouped = kind.startswith("grouped_")
        set_index = rng.randrange(sets) if rng.random() < 0.5 else 0
        reduction = rng.choice(("sum", "average") if "scatter" in kind else list(REDUCTIONS))
        dtype = rng.choice(FLOATS if reduction == "average" else DTYPES)
        counts = tuple(_count(rng, dtype, grouped) for _ in range(rng.randint(1, 5) if grouped else 1))
        if kind.endswith(("allgather", "alltoall")):
            counts = tuple(count // _MOST_ROWS for count in counts)
        return Op(kind, dtype, counts, reduction, set_index, rng.choice(self.sets[set_index]))


def _count(rng: random.Random, dtype: np.dtype, small: bool) -> int:
    choice = rng.random()
    low, high = 1, SMALL
    if choice > 0.98 and not small:
        low, high = LARGE, HUGE
    elif choice > 0.85 and not small:
        low, high = SMALL, LARGE
    return int(low * (high / low) ** rng.random()) // dtype.itemsize


class Oracle:
    """Knows every rank's input to an operation, and every result."""

    def __init__(self) -> None:
        index = np.arange(HUGE + _SLACK, dtype=np.int32)
        values = (index % 1009 * 7 + index % 251 * 3 + (index >> 5)) % 13 + 1
        self._values, self._factors = {}, {}
        for dtype in DTYPES:
            some = values[: HUGE // dtype.itemsize + _SLACK]
            self._values[dtype] = some.astype(dtype)
            self._factors[dtype] = (some % 2 + 1).astype(dtype)

    def input(self, op: Op, rank: int, member: int = 0, sets: Sequence[Sequence[int]] = ()) -> np.ndarray:
        """Return what a rank gives; nobody may write to it."""
        count = op.counts[member]
        pool = (self._factors if op.reduction == "product" and "reduce" in op.kind else self._values)[op.dtype]
        begin = (op.index * 31 + rank * 17 + member * 7) % _SLACK
        if op.single == "allgather":
            rows = self.rows(op, rank)
            return pool[begin : begin + rows * count].reshape(rows, count)
        if op.single == "alltoall":
            rows = sum(self.splits(op, rank, len(sets[op.set_index])))
            return pool[begin : begin + rows * count].reshape(rows, count)
        piece = pool[begin : begin + count]
        # Rows of a few elements, so that what is left over is shared out, too.
        return piece[: count // _COLUMNS * _COLUMNS].reshape(-1, _COLUMNS) if op.single == "reducescatter" else piece

    @staticmethod
    def rows(op: Op, rank: int) -> int:
        """Allgather: the first dimension of a rank's array."""
        return (op.index * 5 + rank * 3) % 5

    @staticmethod
    def splits(op: Op, rank: int, members: int) -> list[int]:
        """Alltoall: how many rows a rank sends to each member of the set."""
        return [(op.index + rank * 3 + to * 5) % 4 for to in range(members)]

    def result(self, op: Op, rank: int, sets: Sequence[Sequence[int]], member: int = 0, present=None) -> np.ndarray:
        """Return what a rank must get; `present`: the ranks that have not joined."""
        ranks = sets[op.set_index]
        if op.single == "broadcast":
            return self.input(op, op.root)
        if op.single == "allgather":
            return np.concatenate([self.input(op, one, member) for one in ranks])
        if op.single == "alltoall":
            at, parts = list(ranks).index(rank), []
            for one in ranks:
                splits = self.splits(op, one, len(ranks))
                begin = sum(splits[:at])
                parts.append(self.input(op, one, 0, sets)[begin : begin + splits[at]])
            return np.concatenate(parts)
        total = self._reduce(op, [self.input(op, one, member) for one in ranks if present is None or one in present])
        if op.single == "allreduce":
            return total
        rows, more = divmod(len(total), len(ranks))
        at = list(ranks).index(rank)
        begin = at * rows + min(at, more)
        return total[begin : begin + rows + (at < more)]

    @staticmethod
    def _reduce(op: Op, arrays: list[np.ndarray]) -> np.ndarray:
        combine = {"min": np.minimum, "max": np.maximum, "product": np.multiply}.get(op.reduction, np.add)
        total = arrays[0].copy()
        for array in arrays[1:]:
            combine(total, array, out=total)
        if op.reduction == "average":
            wide = np.dtype(np.float32) if op.dtype.itemsize == 2 else op.dtype
            total = (total.astype(wide) * wide.type(1.0 / len(arrays))).astype(op.dtype)
        return total
