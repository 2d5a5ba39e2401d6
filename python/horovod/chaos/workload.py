# SPDX-License-Identifier: Apache-2.0
"""
Runs random operations on this rank, in every way there is, and checks each result that it gets.

The list is cut into windows. After each the ranks agree whether to go on. In a window, operations overlap in an order
of the rank's own, or block one after the other; in some, process sets change meanwhile, or ranks run out of operations
and join.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from typing import Any, Callable

import numpy as np

import horovod.numpy as hvd
from horovod.chaos.operations import REDUCTIONS, Maker, Op, Oracle

WINDOW = 12
WINDOWS = {"overlapping": 45, "blocking": 25, "sets": 15, "join": 15}
# Results that are looked at once more, when everybody has ended.
_KEPT_BYTES = 8 << 20


class WrongResult(Exception):
    """An operation that succeeded gave something else than it must."""


class _Started:
    """An operation in flight."""

    __slots__ = ("op", "handle", "in_place", "present")

    def __init__(self, op: Op, handle: int, in_place: list[np.ndarray], present: list[int] | None) -> None:
        self.op = op
        self.handle = handle
        self.in_place = in_place
        self.present = present


class Workload:
    """
    The operations of one generation on this rank. `tick` may be set; it is called before every call of Horovod.

    After an error, `settle` waits for what was in flight. `kept` are arrays that nobody may write to, with copies.
    """

    def __init__(
        self, seed: str, rank: int, process_sets: list[hvd.ProcessSet], sets: list[list[int]], oracle: Oracle
    ) -> None:
        self.seed = seed
        self.rank = rank
        self.sets = sets
        self.process_sets = process_sets
        self.oracle = oracle
        self.tick: Callable[[], None] = lambda: None
        self.maker = Maker(seed, sets)
        self.rng = random.Random(f"{seed} rank {rank}")
        self.first = 0
        self.window_number = 0
        self.checked = 0
        self.started: list[_Started] = []
        self.kept: list[tuple[str, np.ndarray, np.ndarray]] = []
        every = (list(c) for n in range(1, len(sets[0])) for c in itertools.combinations(sets[0], n))
        self._candidates = [one for one in every if one not in sets][:16]

    def run(self, may_stop: Callable[[], bool]) -> None:
        """Run windows until some rank may stop."""
        stop = False
        while not stop:
            self.window()
            self.tick()
            stop = self.any(may_stop())

    @staticmethod
    def any(flag: bool) -> bool:
        """Whether it is true on any rank."""
        return bool(hvd.allreduce(np.array([flag], np.int32), op=hvd.Max, name="any")[0])

    def settle(self, blamed: int | None) -> None:
        """
        Wait for what is in flight after an error that blames a rank. What succeeded all the same is checked.

        Among ranks that are all there operations go on until somebody shuts down, and some of them wait for an
        operation that a rank with an error will never start: those are left to `after_shutdown`.
        """
        for started in list(self.started):
            if blamed in self.sets[started.op.set_index] or hvd.poll(started.handle):
                with contextlib.suppress(hvd.HorovodInternalError):
                    self._finish(started)

    def after_shutdown(self) -> None:
        """See that nothing is in flight any more."""
        for started in list(self.started):
            with contextlib.suppress(hvd.HorovodInternalError):
                self._finish(started)

    def check_kept(self) -> None:
        """See that nobody has written to memory of operations that were over."""
        for what, array, copy in self.kept:
            if not np.array_equal(array, copy):
                raise WrongResult(f"memory of {what} changed after the operation was over")

    def window(self) -> None:
        """Run one window."""
        rng = random.Random(f"{self.seed} kind {self.window_number}")
        kind = rng.choices(list(WINDOWS), list(WINDOWS.values()))[0]
        if kind == "join":
            self._join(rng)
        else:
            sets = self.maker.initial_sets if kind == "sets" else len(self.sets)
            ops = self.maker.window(self.window_number, self.first, WINDOW, sets)
            if kind == "blocking":
                self._block(ops, rng)
            else:
                self._overlap(self._own(ops), rng if kind == "sets" else None)
        self.window_number += 1
        self.first += WINDOW

    def _own(self, ops: list[Op]) -> list[Op]:
        return [op for op in ops if self.rank in self.sets[op.set_index]]

    def _block(self, ops: list[Op], rng: random.Random) -> None:
        barrier = rng.randrange(2 * WINDOW)
        for i, op in enumerate(ops):
            if i == barrier:
                self.tick()
                hvd.barrier()
            if not self._own([op]):
                continue
            self.tick()
            (function, positional, named), in_place = self._arguments(op, blocking=True)
            self._check(op, function(*positional, **named), None)
            self._keep(op, in_place)

    def _overlap(self, ops: list[Op], sets_rng: random.Random | None) -> None:
        order = self.rng.sample(ops, len(ops))
        change_at = self.rng.randrange(len(ops) + 1) if sets_rng else -1
        for i, op in enumerate(order):
            if i == change_at:
                self._change_sets(sets_rng)
            self._start(op)
        if change_at == len(ops):
            self._change_sets(sets_rng)
        for started in self.rng.sample(self.started, len(self.started)):
            self.tick()
            self._finish(started)

    def _join(self, rng: random.Random) -> None:
        ops = self.maker.sums(self.window_number, self.first, WINDOW)
        counts = [rng.randint(0, WINDOW) for _ in self.sets[0]]
        blocking = rng.random() < 0.5
        for i, op in enumerate(ops[: counts[self.rank]]):
            present = [rank for rank, count in enumerate(counts) if count > i]
            if blocking:
                self.tick()
                function, positional, named = self._arguments(op, blocking=True)[0]
                self._check(op, function(*positional, **named), present)
            else:
                self._start(op, present)
        self.tick()
        last = hvd.join()
        if not 0 <= last < len(self.sets[0]):
            raise WrongResult(f"join returned {last}")
        for started in list(self.started):
            self.tick()
            self._finish(started)

    def _change_sets(self, rng: random.Random | None) -> None:
        assert rng
        self.tick()
        if len(self.sets) > self.maker.initial_sets:
            self.sets.pop()
            hvd.remove_process_set(self.process_sets.pop())
            return
        free = [one for one in self._candidates if one not in self.sets]
        if not free:
            return
        ranks = rng.choice(free)
        self.process_sets.append(hvd.add_process_set(ranks))
        self.sets.append(ranks)

    def _start(self, op: Op, present: list[int] | None = None) -> None:
        self.tick()
        (function, positional, named), in_place = self._arguments(op, blocking=False)
        handle = function(*positional, **named)
        self.started.append(_Started(op, handle, in_place, present))

    def _finish(self, started: _Started) -> None:
        self.started.remove(started)
        try:
            result = hvd.synchronize(started.handle)
            self._check(started.op, result, started.present)
        finally:
            self._keep(started.op, started.in_place)

    def _keep(self, op: Op, arrays: list[np.ndarray]) -> None:
        # In place, so a peer that is late would write into them.
        for array in arrays:
            if array.nbytes <= _KEPT_BYTES // 8:
                self.kept.append((op.name, array, array.copy()))
        while sum(array.nbytes for _, array, _ in self.kept) > _KEPT_BYTES:
            self.kept.pop(0)

    def _arguments(self, op: Op, blocking: bool) -> tuple[tuple[Callable, list, dict], list[np.ndarray]]:
        in_place = op.single in ("allreduce", "broadcast") and self.rng.random() < 0.5
        function = getattr(hvd, op.kind + ("" if blocking else "_async") + ("_" if in_place else ""))
        named: dict[str, Any] = {"name": op.name, "process_set": self.process_sets[op.set_index]}
        if "reduce" in op.kind:
            named["op"] = REDUCTIONS[op.reduction]
        arrays = [self._place(self.oracle.input(op, self.rank, i, self.sets)) for i in range(len(op.counts))]
        positional: list[Any] = [arrays if op.kind != op.single else arrays[0]]
        if op.kind == "broadcast":
            positional.append(op.root)
        if op.kind == "alltoall":
            named["splits"] = self.oracle.splits(op, self.rank, len(self.sets[op.set_index]))
        return (function, positional, named), arrays if in_place else []

    def _place(self, array: np.ndarray) -> np.ndarray:
        if self.rng.random() < 0.6:
            return array.copy()
        shared = hvd.empty(array.shape, array.dtype)
        shared[...] = array
        return shared

    def _check(self, op: Op, result: Any, present: list[int] | None) -> None:
        if op.kind == "alltoall":
            result, received = result
            at, ranks = self.sets[op.set_index].index(self.rank), self.sets[op.set_index]
            expected = [self.oracle.splits(op, one, len(ranks))[at] for one in ranks]
            if received.tolist() != expected:
                raise WrongResult(f"{op}: splits {received.tolist()} instead of {expected}")
        for member, found in enumerate(result if op.kind != op.single else [result]):
            right = self.oracle.result(op, self.rank, self.sets, member, present)
            if found.dtype != right.dtype or found.shape != right.shape:
                raise WrongResult(f"{op}: {found.dtype}{found.shape} instead of {right.dtype}{right.shape}")
            if not np.array_equal(found, right):
                where = np.flatnonzero(found.reshape(-1) != right.reshape(-1))
                first = int(where[0])
                raise WrongResult(
                    f"{op}: {len(where)} of {right.size} elements differ, first at {first}: "
                    f"{found.reshape(-1)[first]!r} instead of {right.reshape(-1)[first]!r}"
                )
        self.checked += 1
