#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures a compiled allreduce of horovod.jax above a compiled function that does nothing, with 2 ranks.

Needs JAX in this Python: build/suites/jax/bin/python benchmarks/jax_bench.py
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

MOST_US = 12  # of an allreduce of 10 floats above an empty program
_CALLS = 200


def measure(seconds: float) -> dict[str, list[float]]:
    """Return the median of each round's calls in microseconds. Programs take turns, a round of calls each."""
    import horovod.jax as hvd
    import horovod.numpy as hnp
    import jax
    import jax.numpy as jnp
    import numpy as np

    hvd.init()
    array, plain = jnp.ones(10), np.ones(10, np.float32)
    empty = jax.jit(lambda x: x)
    program = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Max, name="program"))
    calls = {
        "empty jit": lambda: empty(array).block_until_ready(),
        "allreduce inside of jit": lambda: program(array).block_until_ready(),
        "allreduce outside of jit": lambda: hvd.allreduce(array, op=hvd.Max, name="eager").block_until_ready(),
        "horovod.numpy": lambda: hnp.allreduce(plain, op=hnp.Max, name="plain"),
    }
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    begin = time.perf_counter()
    go_on = True
    while go_on:
        for name, call in calls.items():
            times = []
            hnp.barrier()
            for _ in range(_CALLS):
                start = time.perf_counter_ns()
                call()
                times.append((time.perf_counter_ns() - start) / 1000)
            rounds[name].append(statistics.median(times))
        go_on = bool(hnp.broadcast_object(time.perf_counter() - begin < seconds, name="go on"))
    return rounds if hvd.rank() == 0 else {}


def show(rounds: dict[str, list[float]]) -> str:
    """Return a table in Markdown."""
    lines = ["| 10 floats, µs | best round | median of rounds | above an empty jit |", "|---|---:|---:|---:|"]
    empty = rounds["empty jit"]
    for name, found in rounds.items():
        best, median = min(found), statistics.median(found)
        above = f"{best - min(empty):.1f}, {median - statistics.median(empty):.1f}"
        goal = f" (meant: {MOST_US} at most)" if name == "allreduce inside of jit" else ""
        lines.append(f"| {name} | {best:.1f} | {median:.1f} | {above}{goal} |")
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    if "HOROVOD_RANK" in os.environ:
        rounds = measure(options.seconds)
        if rounds:
            print("RESULT " + json.dumps(rounds), flush=True)
        return
    horovodrun = Path(sys.executable).parent / "horovodrun"
    command = [horovodrun, "-np", "2", sys.executable, __file__, "--seconds", str(options.seconds)]
    env = dict(os.environ, OMP_NUM_THREADS="1", XLA_FLAGS="--xla_cpu_multi_thread_eigen=false")
    done = subprocess.run(command, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    for line in done.stdout.splitlines():
        if "RESULT " in line:
            print(show(json.loads(line.split("RESULT ", 1)[1])))
            return
    sys.exit(f"the ranks ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


if __name__ == "__main__":
    main()
