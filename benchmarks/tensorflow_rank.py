# SPDX-License-Identifier: Apache-2.0
"""A rank of benchmarks/tensorflow_bench.py: measures one thing and prints it as JSON on rank 0."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf


def median_s(call: Callable[[], object], repetitions: int, warm_up: int = 5) -> float:
    """Return the median time of a call."""
    times = []
    for repetition in range(warm_up + repetitions):
        begin = time.perf_counter()
        call()
        if repetition >= warm_up:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def interleaved_s(
    calls: dict[str, Callable[[], object]], rounds: int, repetitions: int, warm_up: int = 5
) -> dict[str, float]:
    """Return the median over rounds of each call's median time; every round measures all of them."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_number in range(rounds):
        names = list(calls) if round_number % 2 else list(reversed(calls))
        for name in names:
            times[name].append(median_s(calls[name], repetitions, warm_up))
    return {name: statistics.median(values) for name, values in times.items()}


def small() -> dict[str, float]:
    """4 B: eagerly, and in a chain of dependent operations less the same chain of identities."""
    x = tf.constant([1.0])

    @tf.function(autograph=False)
    def chain(x):
        for i in range(100):
            x = hvd.allreduce(x, op=hvd.Average, name=f"link{i}")
        return x

    @tf.function(autograph=False)
    def plain_chain(x):
        for _ in range(100):
            x = tf.identity(x)
        return x

    calls = {
        "eager": lambda: hvd.allreduce(x, op=hvd.Sum, name="eager"),
        "chain": lambda: chain(x),
        "identities": lambda: plain_chain(x),
    }
    times = interleaved_s(calls, 5, 100)
    return {"eager_us": times["eager"] * 1e6, "link_us": (times["chain"] - times["identities"]) * 1e4}


def resnet50_shapes() -> list[tuple[int, ...]]:
    """Shapes of the 161 trainable tensors, 25,557,032 numbers."""
    shapes: list[tuple[int, ...]] = [(7, 7, 3, 64), (64,), (64,)]
    inputs = 64
    for planes, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            for shape in ((1, 1, inputs, planes), (3, 3, planes, planes), (1, 1, planes, 4 * planes)):
                shapes += [shape, shape[-1:], shape[-1:]]
            if block == 0:
                shapes += [(1, 1, inputs, 4 * planes), (4 * planes,), (4 * planes,)]
            inputs = 4 * planes
    return [*shapes, (2048, 1000), (1000,)]


def one_of_each(results: list[tf.Tensor]) -> tf.Tensor:
    """Return a number that needs all results, so that none of them is left out."""
    return tf.add_n([tf.reshape(result, [-1])[0] for result in results])


def resnet50() -> dict[str, float]:
    """A gradient set of ResNet-50's size: made anew at every step, and made and reduced."""
    gradients = [tf.Variable(tf.random.normal(shape)) for shape in resnet50_shapes()]

    def make(scale):
        return [gradient * scale for gradient in gradients]

    single = tf.function(
        lambda s: one_of_each([hvd.allreduce(g, name=f"grad{i}") for i, g in enumerate(make(s))]), autograph=False
    )
    grouped = tf.function(lambda s: one_of_each(hvd.grouped_allreduce(make(s), name="grads")), autograph=False)
    nothing = tf.function(lambda s: one_of_each(make(s)), autograph=False)
    scale = tf.constant(1.0001)
    calls = {"single": lambda: single(scale), "grouped": lambda: grouped(scale), "nothing": lambda: nothing(scale)}
    return {f"{name}_ms": value * 1e3 for name, value in interleaved_s(calls, 3, 9).items()}


def keras_model(width: int, depth: int, optimizer: tf.keras.optimizers.Optimizer) -> tf.keras.Model:
    """A network of dense layers."""
    layers = [tf.keras.layers.Dense(width, activation="relu") for _ in range(depth)]
    model = tf.keras.Sequential([tf.keras.Input([width]), *layers, tf.keras.layers.Dense(10)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss)
    return model


def batches(width: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Data for one step."""
    generator = np.random.default_rng(0)
    return generator.standard_normal((batch, width)).astype("float32"), generator.integers(0, 10, batch)


def wrapped() -> dict[str, float]:
    """Steps of about 1 ms on one process, with a plain and with a wrapped optimizer."""
    x, y = (tf.constant(value) for value in batches(256, 64))
    plain = keras_model(256, 2, tf.keras.optimizers.Adam())
    distributed = keras_model(256, 2, hvd.DistributedOptimizer(tf.keras.optimizers.Adam()))
    data = tf.data.Dataset.from_tensors((x, y)).repeat(400)
    calls = {
        name: lambda model=model: model.fit(data, verbose=0, epochs=1)
        for name, model in (("plain", plain), ("wrapped", distributed))
    }
    times = interleaved_s(calls, 15, 2, warm_up=1)
    return {f"{name}_ms": value / 400 * 1e3 for name, value in times.items()}


def hidden() -> dict[str, float]:
    """A network with large dense layers: steps with and without reduction, and the reduction alone."""
    width, depth, batch = 1536, 5, 256
    x, y = (tf.constant(value) for value in batches(width, batch))
    plain = keras_model(width, depth, tf.keras.optimizers.SGD(0.01))
    distributed = keras_model(width, depth, hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)))
    data = tf.data.Dataset.from_tensors((x, y)).repeat(10)

    def make():
        return [variable * 1.0001 for variable in plain.trainable_variables]

    reduce = tf.function(
        lambda: one_of_each([hvd.allreduce(g, name=f"alone{i}") for i, g in enumerate(make())]), autograph=False
    )
    nothing = tf.function(lambda: one_of_each(make()), autograph=False)
    calls = {
        "plain": lambda: plain.fit(data, verbose=0, epochs=1),
        "distributed": lambda: distributed.fit(data, verbose=0, epochs=1),
        "reduce": reduce,
        "nothing": nothing,
    }
    times = interleaved_s(calls, 3, 3, warm_up=1)
    reduction = times["reduce"] - times["nothing"]
    more = (times["distributed"] - times["plain"]) / 10
    return {
        "plain_ms": times["plain"] * 100,
        "distributed_ms": times["distributed"] * 100,
        "reduction_ms": reduction * 1e3,
        "hidden_percent": 100 * (1 - more / reduction),
    }


def throughput() -> dict[str, float]:
    """Examples per second and process of a compute-heavy fit."""
    width, batch = 768, 512
    model = keras_model(width, 4, hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)))
    x, y = (tf.constant(value) for value in batches(width, batch))
    data = tf.data.Dataset.from_tensors((x, y)).repeat(10)
    model.fit(data, verbose=0, epochs=1)
    hvd.allreduce(0.0)
    step = median_s(lambda: model.fit(data, verbose=0, epochs=1), 9, 1) / 10
    return {"examples_per_s": batch / step}


def main() -> None:
    """Be a rank."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    result = globals()[sys.argv[1]]()
    if hvd.rank() == 0:
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
