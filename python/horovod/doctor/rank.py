# SPDX-License-Identifier: Apache-2.0
"""What every rank of the doctor's own job does: tell its facts, and measure the way to every other rank."""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
import sys
import time

import numpy as np

import horovod.numpy as hvd
from horovod.doctor.findings import MARK
from horovod.doctor.machine import gather

_ROUNDS = 50
_BYTES = 8 << 20
_COPIES = 3
# The number of pairs grows with the square.
_MOST_RANKS = 16


def _latency(pair: hvd.ProcessSet) -> float:
    """Return the microseconds that four bytes need to be summed."""
    value = np.zeros(1, np.float32)
    times = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        hvd.allreduce(value, op=hvd.Sum, name="doctor.latency", process_set=pair)
        times.append(time.perf_counter() - begun)
    return statistics.median(times[_ROUNDS // 5 :]) * 1e6


def _bandwidth(pair: hvd.ProcessSet, root: int) -> float:
    """Return the megabytes per second of a broadcast."""
    data = np.ones(_BYTES, np.uint8)
    times = []
    for _ in range(_COPIES):
        hvd.barrier(process_set=pair)
        begun = time.perf_counter()
        hvd.broadcast(data, root, name="doctor.bandwidth", process_set=pair)
        hvd.barrier(process_set=pair)
        times.append(time.perf_counter() - begun)
    return _BYTES / min(times) / 1e6


def main() -> int:
    """Run on every rank."""
    ranks = range(min(int(sys.argv[1]), _MOST_RANKS))
    pairs = {both: hvd.ProcessSet(both) for both in itertools.combinations(ranks, 2)}
    # Two ranks are the global set.
    hvd.init(process_sets=[pair for pair in pairs.values() if len(ranks) > 2])
    facts = hvd.allgather_object(dataclasses.asdict(gather()), name="doctor.facts")
    hvd.barrier()
    clocks = hvd.allgather_object(time.time(), name="doctor.clocks")
    measured = []
    for (one, other), pair in pairs.items():
        if hvd.rank() in (one, other):
            members = pair if len(ranks) > 2 else hvd.global_process_set
            measured.append([one, other, _latency(members), _bandwidth(members, one)])
        hvd.barrier()
    tables = hvd.allgather_object(measured, name="doctor.pairs")
    if hvd.rank() == 0:
        # Both saw it; the slower one counts.
        table = {}
        for one, other, latency, bandwidth in itertools.chain(*tables):
            before = table.get((one, other), (0.0, float("inf")))
            table[one, other] = max(before[0], latency), min(before[1], bandwidth)
        result = {
            "facts": facts,
            "clocks": [clock - clocks[0] for clock in clocks],
            "pairs": [[*both, *values] for both, values in sorted(table.items())],
        }
        print(MARK + json.dumps(result), flush=True)
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
