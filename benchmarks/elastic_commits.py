# SPDX-License-Identifier: Apache-2.0
"""
What commits of an elastic state cost: steps of 50 ms that change 100 MB of variables, with and without commits.

    horovodrun -np 2 --min-np 1 python benchmarks/elastic_commits.py --loop numpy

Blocks of steps without a commit, with one after each step and with one after each tenth step take turns, so that what
else the machine does hits all alike. The table has the mean step of each kind of block, its median over the blocks.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, Callable

import numpy as np

VARIABLES = 100
KINDS = {"none": 0, "each step": 1, "each tenth step": 10}

Loop = tuple[Any, Any, Callable[[], None]]  # hvd, state, change of all variables


def with_numpy(megabytes: int) -> Loop:
    """Return arrays that are changed in place."""
    import horovod.numpy as hvd

    hvd.init()
    arrays = {f"v{i}": np.zeros(megabytes * 250_000 // VARIABLES, np.float32) for i in range(VARIABLES)}

    def change() -> None:
        for array in arrays.values():
            array += 1.0

    return hvd, hvd.elastic.NumpyState(arrays), change


def with_torch(megabytes: int) -> Loop:
    """Return the parameters of a model."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    torch.set_num_threads(1)
    size = megabytes * 250_000 // VARIABLES
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(size)) for _ in range(VARIABLES)])

    def change() -> None:
        with torch.no_grad():
            torch._foreach_add_(list(model), 1.0)

    return hvd, hvd.elastic.TorchState(model=model), change


def with_tensorflow(megabytes: int) -> Loop:
    """Return variables that a tf.function changes."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    variables = [tf.Variable(tf.zeros(megabytes * 250_000 // VARIABLES)) for _ in range(VARIABLES)]

    @tf.function
    def change() -> None:
        for variable in variables:
            variable.assign_add(tf.ones_like(variable))

    return hvd, hvd.elastic.TensorFlowState(variables), change


LOOPS = {"numpy": with_numpy, "torch": with_torch, "tensorflow": with_tensorflow}


def block(state: Any, change: Callable[[], None], steps: int, compute_s: float, every: int) -> float:
    """Do steps; return the mean seconds of one."""
    began = time.perf_counter()
    for step in range(1, steps + 1):
        time.sleep(compute_s)
        change()
        if every and step % every == 0:
            state.commit()
    return (time.perf_counter() - began) / steps


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--loop", choices=LOOPS, default="numpy")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--step", type=float, default=50.0, help="milliseconds of a step without commits")
    parser.add_argument("--blocks", type=int, default=7, help="of each kind")
    parser.add_argument("--steps", type=int, default=20, help="of a block")
    arguments = parser.parse_args()
    hvd, state, change = LOOPS[arguments.loop](arguments.megabytes)

    @hvd.elastic.run
    def measure(state: Any) -> dict[str, float]:
        state.commit()
        block(state, change, 3, 0.0, 1)
        compute_s = max(arguments.step / 1000 - block(state, change, 3, 0.0, 0), 0.0)
        times: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(arguments.blocks):
            for kind, every in KINDS.items():
                times[kind].append(block(state, change, arguments.steps, compute_s, every))
        return {kind: statistics.median(seconds) for kind, seconds in times.items()}

    medians = measure(state)
    if hvd.rank() == 0:
        print(f"{arguments.loop}, {hvd.size()} ranks, {arguments.megabytes} MB\ncommits          a step    more")
        for kind, seconds in medians.items():
            print(f"{kind:<16}{1000 * seconds:>5.1f} ms{100 * (seconds / medians['none'] - 1):>7.1f} %")


if __name__ == "__main__":
    main()
