# SPDX-License-Identifier: Apache-2.0
"""One rank: microseconds of a blocking 4 B allreduce from NumPy, and of a ctypes call that does nothing, in turns."""

from __future__ import annotations

import os
import statistics
import time

import horovod.numpy as hvd
import numpy as np
from horovod.common.library import load

CALLS, TURNS = 500, 10


def microseconds(call) -> list[float]:
    """Of each of a turn's calls."""
    times = []
    for _ in range(CALLS):
        start = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - start) / 1000)
    return times


def main() -> None:
    hvd.init()
    usable = sorted(os.sched_getaffinity(0))
    if hvd.local_size() <= len(usable):  # as the other programs do
        os.sched_setaffinity(0, {usable[hvd.local_rank()]})
    value = np.ones(1, np.float32)
    nothing = load().hvd_abi_version

    def allreduce() -> None:
        hvd.allreduce(value, op=hvd.Sum, name="four bytes")

    assert hvd.allreduce(value, op=hvd.Sum, name="four bytes")[0] == hvd.size()
    measured: dict[str, list[float]] = {"allreduce": [], "ctypes": []}
    microseconds(allreduce)
    for _ in range(TURNS):
        measured["allreduce"] += microseconds(allreduce)
        hvd.barrier()
        measured["ctypes"] += microseconds(nothing)
        hvd.barrier()
    if hvd.rank() == 0:
        # As the programs of peers/ do: op, ranks, bytes, iterations, min, median, 90th percentile.
        for name, times in measured.items():
            times.sort()
            middle, high = statistics.median(times), times[len(times) * 9 // 10]
            print(f"{name},{hvd.size()},4,{len(times)},{times[0]:.3f},{middle:.3f},{high:.3f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
