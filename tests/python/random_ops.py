# SPDX-License-Identifier: Apache-2.0
"""
Random operations on all ranks, each result compared bit for bit with the rank-order reference.

Every rank makes the same list of operations from the seed and knows all ranks' inputs. The list is cut into windows. In
most windows each rank submits in its own shuffled order, in some all call the blocking functions in list order. In some
a process set is removed and another added meanwhile. In others the ranks have different numbers of operations, and then
join. Names repeat with the same meaning (cached plans), repeat with another meaning (plans that are contradicted), or
are new. Adasum alone is compared with a tolerance, and its bits between ranks. At the end each rank prints a digest of
all result bits: two runs with one seed must print the same.

    horovodrun -np 3 tests/python/random_ops.py --ops 100000 --seed 1
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import itertools
import os
import time

import horovod.numpy as hvd
import numpy as np
from random_list import SUMS, Inputs, Maker, Op
from reference import adasum, near, reduce, same_bits, scattered

FEW_RANKS = {1: [], 2: [[0]], 3: [[0, 1], [1, 2]], 4: [[0, 1], [1, 2], [1, 2, 3], [3]]}
WINDOW = 32
# Kinds of windows, over and over.
BLOCKING, ASYNC, CHANGE, JOIN = "blocking", "async", "change", "join"
ORDER = (ASYNC, CHANGE, ASYNC, BLOCKING, JOIN, ASYNC, CHANGE, BLOCKING)


def fixed_sets(size: int) -> list[list[int]]:
    """Return sets that overlap, contain each other or have one member; others are left for those that come and go."""
    if size in FEW_RANKS:
        return FEW_RANKS[size]
    ranks = list(range(size))
    return [ranks[:2], ranks[1:3], ranks[1:], ranks[-1:], ranks[::2], ranks[size // 2 :]]


class DynamicSets:
    """Process sets that come and go. All ranks choose the same."""

    def __init__(self, sets: list[list[int]], process_sets: list[hvd.ProcessSet], seed: int) -> None:
        self.sets = sets
        self.process_sets = process_sets
        self.seed = seed
        self.first = len(sets)
        self.next_id = len(sets)
        self.freed: collections.deque[int] = collections.deque()
        size = len(sets[0])
        every = [list(c) for n in range(1, size) for c in itertools.combinations(range(size), n)]
        self.candidates = [one for one in every if one not in sets]

    def change(self, number: int) -> None:
        """Remove a set or add one, and see that ids are what they must be."""
        rng = np.random.default_rng([self.seed, 5, number])
        at = int(rng.integers(self.first, self.first + 2))
        if at < len(self.sets):
            identifier, old = self.process_sets[at].process_set_id, self.process_sets.pop(at)
            self.sets.pop(at)
            if not hvd.remove_process_set(old) or old.process_set_id is not None:
                raise SystemExit(f"{old} was not removed")
            self.freed.append(identifier)
        free = [one for one in self.candidates if one not in self.sets]
        if not free:
            return
        ranks = free[rng.integers(len(free))]
        added = hvd.add_process_set(hvd.ProcessSet(ranks) if rng.integers(2) else ranks)
        if self.freed:
            expected = self.freed.popleft()
        else:
            expected = self.next_id
            self.next_id += 1
        if (added.process_set_id, added.ranks) != (expected, ranks):
            raise SystemExit(f"{added} instead of id {expected} and ranks {ranks}")
        self.sets.append(ranks)
        self.process_sets.append(added)


class Runner:
    """Runs windows and checks them."""

    def __init__(self, dynamic: DynamicSets, inputs: Inputs, seed: int) -> None:
        self.dynamic = dynamic
        self.sets = dynamic.sets
        self.inputs = inputs
        self.seed = seed
        self.rank = hvd.rank()
        self.digest = hashlib.sha1(usedforsecurity=False)
        self.common = hashlib.sha1(usedforsecurity=False)  # of what is equal on all ranks
        self.checked: collections.Counter[str] = collections.Counter()

    def window(self, number: int, kind: str, ops: list[Op]) -> None:
        mine = [op for op in ops if self.rank in self.sets[op.set_index]]
        rng = np.random.default_rng([self.seed, 4, number, self.rank])  # this rank's own choices
        if kind == JOIN:
            return self._join(number, mine, rng)
        if kind == BLOCKING:
            results = {op.index: self._start(op, rng, blocking=True) for op in mine}
        else:
            at = int(rng.integers(len(mine) + 1)) if kind == CHANGE else -1
            results = self._overlapping(number, mine, rng, at)
        for op in mine:
            self._check(op, results[op.index])

    def _overlapping(self, number: int, ops: list[Op], rng: np.random.Generator, change_at: int = -1) -> dict:
        handles = {}
        for i, which in enumerate(rng.permutation(len(ops))):
            if i == change_at:
                self.dynamic.change(number)
            handles[ops[which].index] = self._start(ops[which], rng, blocking=False)
        if change_at == len(ops):
            self.dynamic.change(number)
        order = [ops[i].index for i in rng.permutation(len(ops))]
        return {i: hvd.synchronize(h) if isinstance(h := handles[i], int) else h for i in order}

    def _join(self, number: int, ops: list[Op], rng: np.random.Generator) -> None:
        common = np.random.default_rng([self.seed, 6, number])
        counts = common.integers(0, len(ops) + 1, len(self.sets[0]))
        mine = ops[: counts[self.rank]]
        before = bool(common.integers(2))
        if common.integers(2):
            results = {op.index: self._start(op, rng, blocking=True) for op in mine}
        elif before:
            results = self._overlapping(number, mine, rng)
        else:
            handles = {op.index: self._start(op, rng, blocking=False) for op in mine}
        last = hvd.join()
        if not before and "handles" in locals():
            results = {index: hvd.synchronize(handle) for index, handle in handles.items()}
        else:
            longest = np.flatnonzero(counts == counts.max())
            if len(longest) == 1 and last != longest[0]:
                raise SystemExit(f"rank {last} joined last instead of {longest[0]}; counts {counts}")
        if not (hvd.allgather([last], name="last") == last).all():
            raise SystemExit("the ranks do not agree about who joined last")
        for i, op in enumerate(mine):
            self._check(op, results[op.index], present=counts > i)
        self.checked["join"] += 1

    def _start(self, op: Op, rng: np.random.Generator, blocking: bool):
        process_set = self.dynamic.process_sets[op.set_index]
        if op.kind == "barrier":
            # A barrier has no asynchronous form. Between windows it fits any order of submission.
            return hvd.barrier(process_set) if blocking else None
        common = {"name": op.name, "process_set": process_set}
        in_place = bool(rng.integers(2)) and op.kind in ("allreduce", "broadcast", "grouped_allreduce")
        function = getattr(hvd, op.kind + ("" if blocking else "_async") + ("_" if in_place else ""))
        if "reduce" in op.kind:
            common.update(op=op.reduction, prescale_factor=op.scale[0], postscale_factor=op.scale[1])
        if op.members:
            return function([self._input(member, rng) for member in op.members], **common)
        if op.kind == "broadcast":
            return function(self._input(op, rng), op.root, **common)
        if op.kind == "alltoall" and not op.equal:
            common["splits"] = op.splits[self.rank]
        return function(self._input(op, rng), **common)

    def _input(self, op: Op, rng: np.random.Generator) -> np.ndarray:
        array = self.inputs.of(op, self.rank)
        if rng.integers(3):  # where the data is must not matter, and may differ by rank
            return array.copy()
        place = hvd.empty(array.shape, array.dtype)
        place[...] = array
        return place

    def _check(self, op: Op, found, present: np.ndarray | None = None) -> None:
        if op.kind == "barrier":
            return
        if op.members:
            if len(found) != len(op.members):
                raise SystemExit(f"{len(found)} results of {op}")
            for member, one in zip(op.members, found):
                self._check_one(op, member, one, present)
        else:
            self._check_one(op, op, found, present)
        self.checked["adasum" if op.reduction == hvd.Adasum else op.kind] += 1

    def _check_one(self, whole: Op, op: Op, found, present: np.ndarray | None) -> None:
        if op.kind == "alltoall":
            at = self.sets[op.set_index].index(self.rank)
            received = [op.splits[rank][at] for rank in self.sets[op.set_index]]
            if not op.equal:
                found, splits = found
                if splits.tolist() != received or splits.dtype != np.int32:
                    raise SystemExit(f"rank {self.rank}: received splits {splits} instead of {received} of {op}")
        expected = self._expected(op, present)
        right = same_bits(found, expected)
        if op.reduction == hvd.Adasum:
            right = near(found, expected, [self.inputs.of(op, rank) for rank in self.sets[0]])
            if present is None:
                self.common.update(np.ascontiguousarray(found).tobytes())
        if not right:
            self._explain(whole, op, found, expected, present)
        self.digest.update(np.ascontiguousarray(found).view(np.uint8) if found.ndim else found.tobytes())

    def _expected(self, op: Op, present: np.ndarray | None) -> np.ndarray:
        members = self.sets[op.set_index]
        if op.kind == "allgather":
            return np.concatenate([self.inputs.of(op, rank) for rank in members])
        if op.kind == "broadcast":
            return self.inputs.of(op, op.root)
        if op.kind == "alltoall":
            at = members.index(self.rank)
            parts = []
            for rank in members:
                begin = sum(op.splits[rank][:at])
                parts.append(self.inputs.of(op, rank)[begin : begin + op.splits[rank][at]])
            return np.concatenate(parts)
        arrays = [self.inputs.of(op, rank, wide=True) for rank in members]
        if present is not None and op.reduction in (*SUMS, hvd.Adasum):
            arrays = [one if here else np.zeros_like(one) for one, here in zip(arrays, present)]
        elif present is not None:
            arrays = [one for one, here in zip(arrays, present) if here]
        if op.reduction == hvd.Adasum:
            return adasum(arrays, op.dtype, *op.scale)
        total = reduce(op.reduction, arrays, op.dtype, *op.scale)
        return scattered(total, len(members), members.index(self.rank)) if op.kind == "reducescatter" else total

    def _explain(self, whole: Op, op: Op, found: np.ndarray, expected: np.ndarray, present) -> None:
        text = f"seed {self.seed}, rank {self.rank}: wrong result of {op} in {whole.name}, ranks present {present}"
        if found.shape != expected.shape or found.dtype != expected.dtype:
            raise SystemExit(f"{text}: {found.dtype}{found.shape} instead of {expected.dtype}{expected.shape}")
        unsigned = np.dtype(f"u{found.itemsize}")
        left, right = found.reshape(-1), expected.reshape(-1)
        wrong = np.flatnonzero((left.view(unsigned) != right.view(unsigned)) | (left != right))  # NaN is wrong in some
        first = wrong[0]
        inputs = (
            [self.inputs.of(op, r).reshape(-1)[first] for r in self.sets[op.set_index]] if "all" in op.kind[:3] else ""
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

    size = int(os.environ.get("HOROVOD_SIZE", "1"))
    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
    process_sets = [hvd.ProcessSet(ranks) for ranks in fixed_sets(size)]
    hvd.init(process_sets=process_sets)
    sets = [list(range(size)), *fixed_sets(size)]
    dynamic = DynamicSets(sets, [hvd.global_process_set, *process_sets], arguments.seed)
    maker = Maker(arguments.seed, sets, len(sets), arguments.max_bytes, arguments.large_fraction)
    runner = Runner(dynamic, Inputs(arguments.seed, size, arguments.max_bytes), arguments.seed)
    start = time.perf_counter()
    for number, first in enumerate(range(0, arguments.ops, WINDOW)):
        kind = ORDER[number % len(ORDER)]
        count = min(WINDOW, arguments.ops - first)
        runner.window(number, kind, maker.window(number, first, count, kind == JOIN, kind == CHANGE))
        if arguments.progress and number % 100 == 0:
            print(f"{first} of {arguments.ops} after {time.perf_counter() - start:.0f} s", flush=True)
    if len(set(hvd.allgather_object(runner.common.hexdigest()))) != 1:
        raise SystemExit("the bits of Adasum differ between ranks")
    seconds = time.perf_counter() - start
    checked = " ".join(f"{kind}={count}" for kind, count in sorted(runner.checked.items()))
    print(f"rank={hvd.rank()} {checked} seconds={seconds:.1f} digest={runner.digest.hexdigest()}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
