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


def identities(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    return [tf.identity(x) for x in tensors]


def in_function(call: Callable) -> Callable:
    return tf.function(call, autograph=False)


# What is measured, and the same call with nothing in it: what TensorFlow takes by itself.
CALLS: dict[str, tuple[Callable, Callable]] = {
    "eager": (allreduce, tf.identity),
    "tf.function": (in_function(allreduce), in_function(tf.identity)),
    "eager, grouped": (grouped, identities),
    "tf.function, grouped": (in_function(grouped), in_function(identities)),
    "tf.function, one by one": (in_function(one_by_one), in_function(identities)),
}


def milliseconds(call: Callable, data: object, iterations: int) -> float:
    """The median of one repetition."""
    times = []
    for _ in range(iterations):
        begin = time.perf_counter()
        call(data)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3


def in_turns(calls: tuple[Callable, ...], data: object, iterations: int) -> list[float]:
    """The median of several repetitions of each, after one that does not count."""
    medians = [[milliseconds(call, data, iterations) for call in calls] for _ in range(REPETITIONS + 1)]
    return [statistics.median(column) for column in zip(*medians[1:])]


def operations() -> dict[str, list[float]]:
    """By operation: what a call takes, and what an empty one does."""
    gradients = [tf.ones([tensor.elements]) for tensor in models.resnet50()]
    found = {}
    for size, mode in OPERATIONS:
        data = gradients if size == RESNET else tf.ones([size // 4])
        result = CALLS[mode][0](data)
        if not tf.reduce_all((result[0] if size == RESNET else result) == float(hvd.size())):
            sys.exit(f"wrong result of {size}, {mode} on rank {hvd.rank()}")
        found[key(size, mode)] = in_turns(CALLS[mode], data, ITERATIONS[size])
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
