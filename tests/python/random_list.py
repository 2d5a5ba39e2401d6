# SPDX-License-Identifier: Apache-2.0
"""The list of operations of random_ops.py, and their inputs: the same on every rank, made from the seed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import horovod.numpy as hvd
import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NAMES = ("uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "bool")
DTYPES = [*(np.dtype(name) for name in NAMES), BFLOAT16]
FLOATS = [np.dtype(name) for name in ("float16", "float32", "float64")] + [BFLOAT16]
REDUCTIONS = [hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product]
SUMS = (hvd.Average, hvd.Sum)
KINDS = {
    "allreduce": 0.40,
    "allgather": 0.10,
    "broadcast": 0.12,
    "barrier": 0.02,
    "alltoall": 0.12,
    "reducescatter": 0.10,
    "grouped_allreduce": 0.08,
    "grouped_allgather": 0.03,
    "grouped_reducescatter": 0.03,
}
JOIN_KINDS = {"allreduce": 0.8, "grouped_allreduce": 0.2}
SMALL = 64 << 10
# Rows that an allgather, or one pair of ranks in an alltoall, has at most.
ROWS = 8
# Names that keep their meaning for the whole run.
FIXED_NAMES = 96
# Names whose meaning changes.
CHANGING_NAMES = 16
# In elements: where in the pool an input of a rank begins, and how far apart two ranks are. No multiple of anything, so
# that a piece of another rank's data, or from another place, is never the same by chance.
OFFSETS = 1024
RANK_STRIDE = 4 * OFFSETS + 3


@dataclass(frozen=True)
class Op:
    """One operation, the same on every rank."""

    kind: str
    dtype: np.dtype
    set_index: int  # 0: all ranks
    shape: tuple[int, ...]  # allgather and alltoall: without the first dimension
    reduction: int
    scale: tuple[float, float]
    root: int
    members: tuple[Op, ...] = ()  # of a group
    # These change from step to step.
    index: int = -1
    name: str = ""
    rows: tuple[int, ...] = ()  # allgather and alltoall: first dimension by rank
    splits: tuple[tuple[int, ...], ...] = ()  # alltoall: by sending rank of the job and receiving member of the set
    equal: bool = False  # alltoall: without splits
    offsets: tuple[int, ...] = ()  # where in its pool each rank's input begins, in elements

    @property
    def joinable(self) -> bool:
        """Whether ranks that have joined can take part."""
        # What a joined rank brings to these must not be scaled; test_join.py knows that it is.
        ignored = self.reduction in (hvd.Min, hvd.Max, hvd.Product)
        return self.kind in JOIN_KINDS and self.set_index == 0 and not (ignored and self.scale[0] != 1.0)


class Inputs:
    """
    Random data of all ranks. An input is a piece of a pool, so making one costs nothing.

    All ranks have the same pool, and each begins elsewhere in it: a pool per rank would not fit into memory where many
    ranks know all ranks' data.
    """

    def __init__(self, seed: int, size: int, max_bytes: int) -> None:
        rng = np.random.default_rng([seed, 1])
        elements = size * RANK_STRIDE
        raw = rng.integers(0, 256, max_bytes + 8 * elements, dtype=np.uint8)
        self.pools: dict[np.dtype, np.ndarray] = {}
        self.wide: dict[np.dtype, np.ndarray] = {}
        for dtype in DTYPES:
            if dtype.kind == "b":
                self.pools[dtype] = (raw & 1).view(bool)
            elif dtype.kind in "iu":
                self.pools[dtype] = raw[: raw.nbytes // 8 * 8].view(dtype)
            else:
                self.pools[dtype] = self._floats(rng, dtype, max_bytes // dtype.itemsize + elements)
                if dtype.itemsize == 2:
                    self.wide[dtype] = self.pools[dtype].astype(np.float32)

    @staticmethod
    def _floats(rng: np.random.Generator, dtype: np.dtype, count: int) -> np.ndarray:
        values = rng.standard_normal(count, dtype=np.float32).astype(np.float64)
        values *= np.array([10.0**exponent for exponent in range(-10, 6)])[rng.integers(0, 16, count, dtype=np.uint8)]
        specials = rng.integers(0, 500, count, dtype=np.uint16)
        for number, special in enumerate((np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-310, 1e-42, 65504.0)):
            values[specials == number] = special
        with np.errstate(all="ignore"):
            return values.astype(dtype)

    def of(self, op: Op, rank: int, wide: bool = False) -> np.ndarray:
        """Return the input of a rank, which nobody may write to; `wide`: half types as float32."""
        shape = (op.rows[rank], *op.shape) if op.kind in ("allgather", "alltoall") else op.shape
        pool = self.wide.get(op.dtype) if wide else None
        if pool is None:
            pool = self.pools[op.dtype]
        begin = rank * RANK_STRIDE + op.offsets[rank]
        piece = pool[begin : begin + int(np.prod(shape, dtype=np.int64))].reshape(shape)
        if op.reduction != hvd.Adasum:
            return piece
        # One infinity would make all of an Adasum NaN.
        plain = np.clip(np.nan_to_num(piece.astype(np.float64), posinf=0.0, neginf=0.0), -100.0, 100.0)
        return np.asarray(plain).astype(piece.dtype)


class Maker:
    """Makes the list of operations, window by window. `sets` may be changed between windows from index `fixed_sets`."""

    def __init__(self, seed: int, sets: list[list[int]], fixed_sets: int, max_bytes: int, large: float) -> None:
        self.seed = seed
        self.sets = sets
        self.fixed_sets = fixed_sets
        self.max_bytes = max_bytes
        self.large = large
        self.size = len(sets[0])
        self.fixed = [self._meaning(np.random.default_rng([seed, 2, i]), KINDS, True) for i in range(FIXED_NAMES)]

    def window(self, number: int, first: int, count: int, joins: bool = False, fixed_sets: bool = False) -> list[Op]:
        """
        Make some operations. `joins`: only such as joined ranks can take part in; `fixed_sets`: only on those.

        A window has every name once.
        """
        rng = np.random.default_rng([self.seed, 3, number])
        fixed = [int(i) for i in rng.permutation(FIXED_NAMES) if self.fixed[i].joinable or not joins]
        changing = rng.permutation(CHANGING_NAMES)
        ops = []
        for i in range(count):
            index = first + i
            choice = rng.random()
            if choice < 0.6 and i < len(fixed):
                name, meaning = f"fixed{fixed[i]}", self.fixed[fixed[i]]
            else:
                meaning = self._meaning(rng, JOIN_KINDS if joins else KINDS, joins or fixed_sets, joins)
                while joins and not meaning.joinable:
                    meaning = self._meaning(rng, JOIN_KINDS, True, True)
                name = (
                    f"changing{changing[i % CHANGING_NAMES]}.{i // CHANGING_NAMES}" if choice < 0.8 else f"new{index}"
                )
            members = tuple(self._step(rng, member) for member in meaning.members)
            ops.append(replace(self._step(rng, meaning), members=members, name=name, index=index))
        return ops

    def _step(self, rng: np.random.Generator, op: Op) -> Op:
        """Choose what may be another in every step."""
        op = replace(op, offsets=tuple(int(o) for o in rng.integers(0, OFFSETS, self.size)))
        some = rng.integers(0, ROWS + 1, (self.size, self.size)) * (rng.random((self.size, self.size)) < 0.8)
        if op.kind == "allgather":
            return replace(op, rows=tuple(int(r) for r in some[0]))
        if op.kind != "alltoall":
            return op
        parts = len(self.sets[op.set_index])
        equal = bool(rng.random() < 0.25)
        if equal:
            some[:] = some[:, :1]
        splits = tuple(tuple(int(s) for s in row[:parts]) for row in some)
        unsent = 0 if equal else int(rng.integers(0, 3))
        return replace(op, equal=equal, splits=splits, rows=tuple(sum(row) + unsent for row in splits))

    def _meaning(self, rng: np.random.Generator, kinds: dict[str, float], fixed_set: bool, all_ranks=False) -> Op:
        kind = str(rng.choice(list(kinds), p=list(kinds.values())))
        sets = self.fixed_sets if fixed_set else len(self.sets)
        set_index = int(rng.integers(sets) * (rng.random() < 0.5)) * (not all_ranks)
        reduction = REDUCTIONS[rng.integers(len(REDUCTIONS))]
        if "allreduce" in kind and set_index == 0 and rng.random() < 0.1:
            reduction = hvd.Adasum
        if "scatter" in kind:
            reduction = SUMS[rng.integers(2)]
        root = int(rng.choice(self.sets[set_index]))
        scale = ((0.5, 1.0), (1.0, 0.25), (3.0, 0.125))[rng.integers(3)] if rng.random() < 0.15 else (1.0, 1.0)
        if not kind.startswith("grouped_"):
            return self._single(rng, kind, set_index, reduction, scale, root)
        member = kind.removeprefix("grouped_")
        count = int(rng.integers(1, 7))
        members = tuple(self._single(rng, member, set_index, reduction, scale, root, small=True) for _ in range(count))
        return Op(kind, members[0].dtype, set_index, (), reduction, scale, root, members)

    def _single(
        self, rng: np.random.Generator, kind: str, set_index: int, reduction: int, scale, root, small=False
    ) -> Op:
        dtypes = FLOATS if reduction == hvd.Adasum else DTYPES
        if kind in ("allreduce", "reducescatter") and (reduction not in (hvd.Min, hvd.Max) or scale != (1.0, 1.0)):
            dtypes = [one for one in dtypes if one.kind != "b"]
        dtype = dtypes[rng.integers(len(dtypes))]
        shape = self._shape(rng, dtype, kind, small)
        # The reference of a scaled one is slow: large ones are rare enough without.
        if np.prod(shape) >= SMALL and not small:
            scale = (1.0, 1.0)
        return Op(kind, dtype, set_index, shape, reduction, scale, root)

    def _shape(self, rng: np.random.Generator, dtype: np.dtype, kind: str, small: bool) -> tuple[int, ...]:
        if rng.random() < 0.04:
            return (0,)
        limit = min(SMALL, self.max_bytes)
        low, high = 0.0, np.log(limit)
        if not small and rng.random() < self.large:
            low, high = high, np.log(self.max_bytes)
        count = int(np.exp(rng.uniform(low, high)) / dtype.itemsize)
        if kind == "allgather":
            count //= ROWS
        if kind == "alltoall":
            count //= ROWS * self.size + 2
        if count <= 1 and kind in ("allreduce", "broadcast") and rng.random() < 0.5:
            return ()
        if kind == "reducescatter" and rng.random() < 0.3:
            return (int(rng.integers(0, 2 * self.size + 2)), count // (2 * self.size + 2))
        if count > 16 and rng.random() < 0.3:
            return (count // 8, 8)
        return (count,)
