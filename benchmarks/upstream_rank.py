# SPDX-License-Identifier: Apache-2.0
"""A rank of benchmarks/upstream.py: times operations, or how much an idle rank does; rank 0 prints it as JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import horovod.tensorflow as hvd
import models
import tensorflow as tf
from upstream import IDLE_S, OPERATIONS, RESNET, key

REPETITIONS = 3
ITERATIONS = {4: 200, 64 << 10: 200, 1 << 20: 60, 16 << 20: 12, 64 << 20: 5, RESNET: 5}


def allreduce(x: tf.Tensor) -> tf.Tensor:
    return hvd.allreduce(x, op=hvd.Sum, name="operation")


def grouped(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    return hvd.grouped_allreduce(tensors, op=hvd.Sum, name="gradients")


def one_by_one(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    return [hvd.allreduce(x, op=hvd.Sum, name=f"gradient{i}") for i, x in enumerate(tensors)]


CALLS: dict[str, Callable] = {
    "eager": allreduce,
    "tf.function": tf.function(allreduce, autograph=False),
    "eager, grouped": grouped,
    "tf.function, grouped": tf.function(grouped, autograph=False),
    "tf.function, one by one": tf.function(one_by_one, autograph=False),
}


def milliseconds(call: Callable, data: object, iterations: int) -> float:
    """The median of several repetitions' medians, after one that does not count."""
    medians = []
    for _ in range(REPETITIONS + 1):
        times = []
        for _ in range(iterations):
            begin = time.perf_counter()
            call(data)
            times.append(time.perf_counter() - begin)
        medians.append(statistics.median(times))
    return statistics.median(medians[1:]) * 1e3


def operations() -> dict[str, float]:
    gradients = [tf.ones([tensor.elements]) for tensor in models.resnet50()]
    found = {}
    for size, mode in OPERATIONS:
        data = gradients if size == RESNET else tf.ones([size // 4])
        result = CALLS[mode](data)
        if not tf.reduce_all((result[0] if size == RESNET else result) == float(hvd.size())):
            sys.exit(f"wrong result of {size}, {mode} on rank {hvd.rank()}")
        found[key(size, mode)] = milliseconds(CALLS[mode], data, ITERATIONS[size])
    return found


def idle() -> dict[str, float]:
    """CPU time of all threads of the worst rank, in percent of a core."""
    allreduce(tf.ones([1]))
    time.sleep(1)  # what TensorFlow does after its first operation is none of it
    begin = time.process_time()
    time.sleep(IDLE_S)
    used = tf.constant(100 * (time.process_time() - begin) / IDLE_S)
    return {"percent": float(hvd.allreduce(used, op=hvd.Max, name="idle"))}


def main() -> None:
    hvd.init()
    result = {"operations": operations, "idle": idle}[sys.argv[1]]()
    if hvd.rank() == 0:
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
