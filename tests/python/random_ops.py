# SPDX-License-Identifier: Apache-2.0
"""
Random operations on all ranks, each result compared bit for bit with the rank-order reference.

Every rank makes the same list of operations from the seed and knows all ranks' inputs. The list is cut into windows. In
most windows each rank submits in its own shuffled order, in some all call the blocking functions in list order. Names
repeat with the same meaning (cached plans), repeat with another meaning (plans that are contradicted), or are new. At
the end each rank prints a digest of all result bits: two runs with one seed must print the same.

    python tools/spawn.py -n 3 -- python tests/python/random_ops.py --ops 100000 --seed 1
"""

from __future__ import annotations

import argparse
import hashlib
import time
from dataclasses import dataclass

import horovod.numpy as hvd
import ml_dtypes
import numpy as np
from reference import reduce, same_bits

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NAMES = ("uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "bool")
DTYPES = [*(np.dtype(name) for name in NAMES), BFLOAT16]
REDUCTIONS = [hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product]
SETS = {
    1: [],
    2: [[0], [1]],
    3: [[0, 1], [1, 2], [0, 2]],
    4: [[0, 1], [1, 2], [0, 2], [1, 2, 3], [3]],
}
WINDOW = 32
SMALL = 64 << 10
# Names that keep their meaning for the whole run.
FIXED_NAMES = 64
# Names whose meaning changes.
CHANGING_NAMES = 16


@dataclass(frozen=True)
class Op:
    """One operation, the same on every rank."""

    index: int
    kind: str
    name: str
    dtype: np.dtype
    set_index: int  # 0: all ranks
    shape: tuple[int, ...]  # allgather: without the first dimension
    rows: tuple[int, ...]  # allgather: first dimension by rank
    reduction: int
    scale: tuple[float, float]
    root: int
    offsets: tuple[int, ...]  # where in its pool each rank's input begins, in elements


class Inputs:
    """Random data of all ranks. An input is a piece of a pool, so making one costs nothing."""

    def __init__(self, seed: int, size: int, max_bytes: int) -> None:
        self.slack = 1024
        self.pools: list[dict[np.dtype, np.ndarray]] = []
        self.wide: list[dict[np.dtype, np.ndarray]] = []
        for rank in range(size):
            rng = np.random.default_rng([seed, 1, rank])
            raw = rng.integers(0, 256, max_bytes + 8 * self.slack, dtype=np.uint8)
            pools, wide = {}, {}
            for dtype in DTYPES:
                if dtype.kind == "b":
                    pools[dtype] = (raw & 1).view(bool)
                elif dtype.kind in "iu":
                    pools[dtype] = raw.view(dtype)
                else:
                    pools[dtype] = self._floats(rng, dtype, raw.nbytes // dtype.itemsize)
                    if dtype.itemsize == 2:
                        wide[dtype] = pools[dtype].astype(np.float32)
            self.pools.append(pools)
            self.wide.append(wide)

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
        shape = (op.rows[rank], *op.shape) if op.kind == "allgather" else op.shape
        pool = self.wide[rank].get(op.dtype) if wide else None
        if pool is None:
            pool = self.pools[rank][op.dtype]
        begin = op.offsets[rank]
        return pool[begin : begin + int(np.prod(shape, dtype=np.int64))].reshape(shape)


class Maker:
    """Makes the list of operations, window by window."""

    def __init__(self, seed: int, sets: list[list[int]], max_bytes: int, large_fraction: float) -> None:
        self.seed = seed
        self.sets = sets
        self.max_bytes = max_bytes
        self.large_fraction = large_fraction
        size = len(sets[0])
        self.fixed = [self._meaning(np.random.default_rng([seed, 2, i]), size) for i in range(FIXED_NAMES)]

    def window(self, number: int, first: int, count: int) -> list[Op]:
        rng = np.random.default_rng([self.seed, 3, number])
        size = len(self.sets[0])
        fixed = rng.permutation(FIXED_NAMES)
        changing = rng.permutation(CHANGING_NAMES)
        ops = []
        for i in range(count):
            index = first + i
            choice = rng.random()
            if choice < 0.6 and i < FIXED_NAMES:
                name, meaning = f"fixed{fixed[i]}", self.fixed[fixed[i]]
            else:
                meaning = self._meaning(rng, size)
                name = (
                    f"changing{changing[i % CHANGING_NAMES]}.{i // CHANGING_NAMES}" if choice < 0.8 else f"new{index}"
                )
            kind, dtype, set_index, shape, reduction, scale, root = meaning
            rows = tuple(int(r) for r in rng.integers(0, 9, size) * (rng.random(size) < 0.8))
            offsets = tuple(int(o) for o in rng.integers(0, 1024, size))
            ops.append(Op(index, kind, name, dtype, set_index, shape, rows, reduction, scale, root, offsets))
        return ops

    def _meaning(self, rng: np.random.Generator, size: int) -> tuple:
        kind = str(rng.choice(["allreduce", "allgather", "broadcast", "barrier"], p=[0.6, 0.17, 0.2, 0.03]))
        dtype = DTYPES[rng.integers(len(DTYPES))]
        set_index = int(rng.integers(len(self.sets)) * (rng.random() < 0.5))
        reductions = [hvd.Min, hvd.Max] if dtype.kind == "b" else REDUCTIONS
        reduction = reductions[rng.integers(len(reductions))]
        shape = self._shape(rng, dtype, kind)
        # The reference of a scaled one is slow: large ones are rare enough without.
        scaled = dtype.kind != "b" and rng.random() < 0.15 and np.prod(shape) < SMALL
        scale = ((0.5, 1.0), (1.0, 0.25), (3.0, 0.125))[rng.integers(3)] if scaled else (1.0, 1.0)
        root = int(rng.choice(self.sets[set_index]))
        return kind, dtype, set_index, shape, reduction, scale, root

    def _shape(self, rng: np.random.Generator, dtype: np.dtype, kind: str) -> tuple[int, ...]:
        if rng.random() < 0.04:
            return (0,)
        small = min(SMALL, self.max_bytes)
        low, high = (
            (0, np.log(small)) if rng.random() >= self.large_fraction else (np.log(small), np.log(self.max_bytes))
        )
        count = int(np.exp(rng.uniform(low, high)) / dtype.itemsize)
        if kind == "allgather":
            count //= 8  # rows are at most 8
        if count <= 1 and kind != "allgather" and rng.random() < 0.5:
            return ()
        if count > 16 and rng.random() < 0.3:
            return (count // 8, 8)
        return (count,)


class Runner:
    """Runs windows and checks them."""

    def __init__(self, sets: list[list[int]], process_sets: list[hvd.ProcessSet], inputs: Inputs, seed: int) -> None:
        self.sets = sets
        self.process_sets = process_sets
        self.inputs = inputs
        self.seed = seed
        self.rank = hvd.rank()
        self.digest = hashlib.sha1(usedforsecurity=False)
        self.checked = 0

    def window(self, number: int, ops: list[Op]) -> None:
        mine = [op for op in ops if self.rank in self.sets[op.set_index]]
        rng = np.random.default_rng([self.seed, 4, number, self.rank])  # this rank's own choices
        if number % 4 == 3:
            results = {op.index: self._start(op, rng, blocking=True) for op in mine}
        else:
            handles = {mine[i].index: self._start(mine[i], rng, blocking=False) for i in rng.permutation(len(mine))}
            order = [mine[i].index for i in rng.permutation(len(mine))]
            results = {i: hvd.synchronize(h) if isinstance(h := handles[i], int) else h for i in order}
        for op in mine:
            if op.kind != "barrier":
                self._check(op, results[op.index])

    def _start(self, op: Op, rng: np.random.Generator, blocking: bool):
        process_set = self.process_sets[op.set_index]
        if op.kind == "barrier":
            # A barrier has no asynchronous form. Between windows it fits any order of submission.
            return hvd.barrier(process_set) if blocking else None
        array = self.inputs.of(op, self.rank)
        memory = rng.integers(3)  # where the data is must not matter, and may differ by rank
        if memory == 0 or op.kind == "allgather":
            array = array.copy()
        else:
            place = hvd.empty(array.shape, array.dtype) if memory == 1 else np.empty(array.shape, array.dtype)
            place[...] = array
            array = place
        in_place = bool(rng.integers(2))
        if op.kind == "allgather":
            function = hvd.allgather if blocking else hvd.allgather_async
            return function(array, name=op.name, process_set=process_set)
        if op.kind == "broadcast":
            function = {
                (True, True): hvd.broadcast_,
                (True, False): hvd.broadcast,
                (False, True): hvd.broadcast_async_,
                (False, False): hvd.broadcast_async,
            }[blocking, in_place]
            return function(array, op.root, name=op.name, process_set=process_set)
        function = {
            (True, True): hvd.allreduce_,
            (True, False): hvd.allreduce,
            (False, True): hvd.allreduce_async_,
            (False, False): hvd.allreduce_async,
        }[blocking, in_place]
        pre, post = op.scale
        return function(
            array, name=op.name, op=op.reduction, prescale_factor=pre, postscale_factor=post, process_set=process_set
        )

    def _check(self, op: Op, found: np.ndarray) -> None:
        members = self.sets[op.set_index]
        if op.kind == "allgather":
            expected = np.concatenate([self.inputs.of(op, rank) for rank in members])
        elif op.kind == "broadcast":
            expected = self.inputs.of(op, op.root)
        else:
            arrays = [self.inputs.of(op, rank, wide=True) for rank in members]
            expected = reduce(op.reduction, arrays, op.dtype, *op.scale)
        if not same_bits(found, expected):
            self._explain(op, found, expected)
        self.digest.update(np.ascontiguousarray(found).view(np.uint8) if found.ndim else found.tobytes())
        self.checked += 1

    def _explain(self, op: Op, found: np.ndarray, expected: np.ndarray) -> None:
        text = f"seed {self.seed}, rank {self.rank}: wrong result of {op}"
        if found.shape != expected.shape or found.dtype != expected.dtype:
            raise SystemExit(f"{text}: {found.dtype}{found.shape} instead of {expected.dtype}{expected.shape}")
        unsigned = np.dtype(f"u{found.itemsize}")
        left, right = found.reshape(-1), expected.reshape(-1)
        wrong = np.flatnonzero(left.view(unsigned) != right.view(unsigned))
        first = wrong[0]
        inputs = (
            [self.inputs.of(op, r).reshape(-1)[first] for r in self.sets[op.set_index]]
            if op.kind != "allgather"
            else ""
        )
        raise SystemExit(
            f"{text}: {len(wrong)} of {left.size} elements differ, first at {first}: {left[first]!r} instead of "
            f"{right[first]!r}; inputs {inputs}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--ops", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-bytes", type=int, default=16 << 20)
    parser.add_argument("--large-fraction", type=float, default=0.1, help="share of operations above 64 KiB")
    parser.add_argument("--progress", action="store_true")
    arguments = parser.parse_args()

    import os

    size = int(os.environ.get("HOROVOD_SIZE", "1"))
    process_sets = [hvd.ProcessSet(ranks) for ranks in SETS[size]]
    hvd.init(process_sets=process_sets)
    sets = [list(range(size)), *SETS[size]]
    maker = Maker(arguments.seed, sets, arguments.max_bytes, arguments.large_fraction)
    inputs = Inputs(arguments.seed, size, arguments.max_bytes)
    runner = Runner(sets, [hvd.global_process_set, *process_sets], inputs, arguments.seed)
    start = time.perf_counter()
    for number, first in enumerate(range(0, arguments.ops, WINDOW)):
        ops = maker.window(number, first, min(WINDOW, arguments.ops - first))
        runner.window(number, ops)
        if arguments.progress and number % 100 == 0:
            print(f"{first} of {arguments.ops} after {time.perf_counter() - start:.0f} s", flush=True)
    hvd.barrier()
    seconds = time.perf_counter() - start
    print(f"rank={hvd.rank()} checked={runner.checked} seconds={seconds:.1f} digest={runner.digest.hexdigest()}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
