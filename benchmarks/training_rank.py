# SPDX-License-Identifier: Apache-2.0
"""A rank of benchmarks/training.py on NumPy arrays: steps with reductions, without, and reductions alone, in turns."""

from __future__ import annotations

import functools
import json
import os
import statistics
import sys
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy: the ranks are to use their own cores

import horovod.numpy as hvd
import numpy as np
from models import MODELS, ready_at
from training_turns import in_turns

SIDE = 96  # a multiplication of about 30 microseconds


class Core:
    """Compute on this rank's core: a fixed number of multiplications, however long they take; it writes gradients."""

    writes = True

    def __init__(self, seconds: float) -> None:
        self._a = np.ones((SIDE, SIDE), np.float32)
        self._out = np.empty_like(self._a)
        per_second = statistics.median(self._rate() for _ in range(5))
        self._total = seconds * slowest(per_second, hvd.Min)
        self._done = 0

    def _rate(self, count: int = 1000) -> float:
        start = time.perf_counter()
        for _ in range(count):
            np.matmul(self._a, self._a, out=self._out)
        return count / (time.perf_counter() - start)

    def begin(self) -> None:
        self._done = 0

    def until(self, share: float) -> None:
        """Go on until this share of the step's work is done."""
        target = int(share * self._total)
        for _ in range(target - self._done):
            np.matmul(self._a, self._a, out=self._out)
        self._done = target


class Accelerator:
    """Compute elsewhere: this rank's core is free until a gradient is due, which was written beside it."""

    writes = False

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._start = 0.0

    def begin(self) -> None:
        self._start = time.perf_counter()

    def until(self, share: float) -> None:
        left = self._start + share * self._seconds - time.perf_counter()
        if left > 0:
            time.sleep(left)


def slowest(value: float, op: int = hvd.Max) -> float:
    return float(hvd.allreduce(np.array([value]), op=op, name="training.agree")[0])


class Training:
    """The gradients of a network, in the order in which they become ready."""

    def __init__(self, model: str, arena: bool) -> None:
        tensors = MODELS[model]()
        make = hvd.empty if arena else np.empty
        self._shares = ready_at(tensors)
        self._gradients = [make(tensor.elements, np.float32) for tensor in reversed(tensors)]
        self._names = [f"training.{model}.{number}" for number in range(len(tensors))]

    def refresh(self) -> None:
        for gradient in self._gradients:
            gradient.fill(hvd.rank())

    def communicate(self) -> None:
        handles = [
            hvd.allreduce_async_(gradient, op=hvd.Average, name=name)
            for gradient, name in zip(self._gradients, self._names)
        ]
        for handle in handles:
            hvd.synchronize(handle)

    def check(self) -> None:
        self.refresh()
        self.communicate()
        expected = (hvd.size() - 1) / 2
        if not all((gradient == expected).all() for gradient in self._gradients):
            sys.exit(f"wrong result on rank {hvd.rank()}")

    def timed_step(self, compute: Core | Accelerator, reduce: bool) -> float:
        """What an accelerator writes is there when it is due; this core, in its place, writes it before."""
        if not compute.writes:
            self.refresh()
        return timed(functools.partial(self._step, compute, reduce))

    def _step(self, compute: Core | Accelerator, reduce: bool) -> None:
        handles = []
        compute.begin()
        for share, gradient, name in zip(self._shares, self._gradients, self._names):
            compute.until(share)
            if compute.writes:
                gradient.fill(hvd.rank())
            if reduce:
                handles.append(hvd.allreduce_async_(gradient, op=hvd.Average, name=name))
        for handle in handles:
            hvd.synchronize(handle)


def timed(action) -> float:
    """Seconds of the slowest rank, from a common start."""
    hvd.barrier()
    start = time.perf_counter()
    action()
    return slowest(time.perf_counter() - start)


def main() -> None:
    wanted = json.loads(sys.argv[1])
    hvd.init()
    usable = sorted(os.sched_getaffinity(0))
    if hvd.local_size() <= len(usable):
        os.sched_setaffinity(0, {usable[hvd.local_rank()]})
    training = Training(wanted["model"], wanted["arena"])
    for _ in range(3):
        training.check()

    def communication() -> float:
        training.refresh()
        return timed(training.communicate)

    alone = statistics.median(communication() for _ in range(3))
    result = {}
    for name in wanted["compute"]:
        compute = {"core": Core, "accelerator": Accelerator}[name](wanted["ratio"] * alone)
        figures = {
            "compute": functools.partial(training.timed_step, compute, False),
            "communication": communication,
            "step": functools.partial(training.timed_step, compute, True),
        }
        result[name] = in_turns(wanted["steps"], figures)
    if hvd.rank() == 0:
        print(json.dumps(result), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
