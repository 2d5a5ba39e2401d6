# SPDX-License-Identifier: Apache-2.0
"""
A rank of benchmarks/numpy_bench.py: measures one thing or several and prints the medians as JSON on rank 0.

A figure is the median of a few rounds, which the ranks begin together.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import horovod.numpy as hvd
import numpy as np

MIB = 1 << 20


def seconds(call: Callable[[], object], rounds: int) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(rounds):
        hvd.barrier()
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def many() -> dict[str, float]:
    """Milliseconds of a step of so many asynchronous allreduces of 4 KiB, submitted and synchronized."""
    result = {}
    for count in (1000, 3000):
        arrays = [np.ones(1024, np.float32) for _ in range(count)]
        names = [f"many {count} {number}" for number in range(count)]

        def step(arrays: list[np.ndarray] = arrays, names: list[str] = names) -> None:
            handles = [hvd.allreduce_async_(array, op=hvd.Max, name=name) for array, name in zip(arrays, names)]
            for handle in handles:
                hvd.synchronize(handle)

        for _ in range(6):  # the library knows a name from its third call on
            step()
        assert all((array == 1).all() for array in arrays)
        result[f"many{count}"] = 1e3 * seconds(step, 15)
    return result


def aligned(count: int) -> np.ndarray:
    """Return an array that begins at a multiple of 64 bytes."""
    memory = np.empty(count * 4 + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    return memory[begin : begin + count * 4].view(np.float32)


def large() -> dict[str, float]:
    """Gigabytes a second of arrays as np.empty makes them, at a multiple of 64 bytes, and of hvd.empty."""
    result = {}
    for size, rounds in ((1, 60), (4, 30), (16, 12)):
        count = size * MIB // 4
        for kind, make in (("malloc", np.empty), ("aligned", aligned), ("arena", hvd.empty)):
            array = make(count, np.float32) if kind != "aligned" else make(count)
            array[:] = 1

            def inside(array: np.ndarray = array, name: str = f"{kind} {size}") -> None:
                hvd.allreduce_(array, op=hvd.Max, name=name)

            def outside(array: np.ndarray = array, name: str = f"new {kind} {size}") -> None:
                hvd.allreduce(array, op=hvd.Max, name=name)

            for way, call in (("in", inside), ("out", outside)):
                seconds(call, 5)
                result[f"{kind}{size}{way}"] = size * MIB / seconds(call, rounds) / 1e9
            assert (array == 1).all()
    return result


def main() -> None:
    """Be a rank."""
    hvd.init()
    usable = sorted(os.sched_getaffinity(0))
    if hvd.local_size() <= len(usable):  # as the other programs do
        os.sched_setaffinity(0, {usable[hvd.local_rank()]})
    result: dict[str, float] = {}
    for what in sys.argv[1].split(","):
        result |= {"many": many, "large": large}[what]()
    if hvd.rank() == 0:
        print("RESULT " + json.dumps(result), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
