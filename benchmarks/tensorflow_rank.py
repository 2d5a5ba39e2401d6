# SPDX-License-Identifier: Apache-2.0
"""A rank of benchmarks/tensorflow_bench.py: measures one thing or several and prints them as JSON on rank 0."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import horovod.tensorflow as hvd
import models
import numpy as np
import tensorflow as tf


def median_s(call: Callable[[], object], repetitions: int) -> float:
    """Return the median time of a call, after a third as many that are not counted."""
    times = []
    for repetition in range(repetitions + repetitions // 3):
        begin = time.perf_counter()
        call()
        if repetition >= repetitions // 3:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def rounds_s(calls: dict[str, Callable[[], object]], rounds: int, repetitions: int) -> list[dict[str, float]]:
    """
    Return each call's median time in every round; a round measures all of them.

    The machine is not equally fast for long, so what is compared is compared within a round. Before the first one each
    is called once: functions are traced, names agreed upon.
    """
    for call in calls.values():
        call()
    times = []
    for round_number in range(rounds):
        names = list(calls) if round_number % 2 else list(reversed(calls))
        times.append({name: median_s(calls[name], repetitions) for name in names})
    return times


def median_of(rounds: list[dict[str, float]], figure: Callable[[dict[str, float]], float]) -> float:
    """Return the median over rounds of a figure of a round."""
    return statistics.median(figure(one) for one in rounds)


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
    rounds = rounds_s(calls, 5, 100)
    return {
        "eager": median_of(rounds, lambda times: times["eager"] * 1e6),
        "link": median_of(rounds, lambda times: (times["chain"] - times["identities"]) * 1e4),
    }


def one_of_each(results: list[tf.Tensor]) -> tf.Tensor:
    """Return a number that needs all results, so that none of them is left out."""
    return tf.add_n([tf.reshape(result, [-1])[0] for result in results])


def resnet50_rounds() -> list[dict[str, float]]:
    """A gradient set of ResNet-50's size: made anew at every step, and made and reduced."""
    gradients = [tf.Variable(tf.random.normal([tensor.elements])) for tensor in models.resnet50()]

    def make(scale):
        return [gradient * scale for gradient in gradients]

    single = tf.function(
        lambda s: one_of_each([hvd.allreduce(g, name=f"grad{i}") for i, g in enumerate(make(s))]), autograph=False
    )
    grouped = tf.function(lambda s: one_of_each(hvd.grouped_allreduce(make(s), name="grads")), autograph=False)
    nothing = tf.function(lambda s: one_of_each(make(s)), autograph=False)
    scale = tf.constant(1.0001)
    calls = {"single": lambda: single(scale), "grouped": lambda: grouped(scale), "nothing": lambda: nothing(scale)}
    return rounds_s(calls, 6, 4)


def resnet50() -> dict[str, float]:
    """Reducing that set, and making it."""
    rounds = resnet50_rounds()
    return {
        "single": median_of(rounds, lambda times: (times["single"] - times["nothing"]) * 1e3),
        "grouped": median_of(rounds, lambda times: (times["grouped"] - times["nothing"]) * 1e3),
        "nothing": median_of(rounds, lambda times: times["nothing"] * 1e3),
    }


def classifier(
    width: int, layers: list[tf.keras.layers.Layer], optimizer: tf.keras.optimizers.Optimizer, **compiled: object
) -> tf.keras.Model:
    """Return these layers with ten classes behind them."""
    model = tf.keras.Sequential([tf.keras.Input([width]), *layers, tf.keras.layers.Dense(10)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, **compiled)
    return model


def keras_model(width: int, depth: int, optimizer: tf.keras.optimizers.Optimizer) -> tf.keras.Model:
    """A network of dense layers."""
    return classifier(width, [tf.keras.layers.Dense(width, activation="relu") for _ in range(depth)], optimizer)


def batches(width: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Data for one step."""
    generator = np.random.default_rng(0)
    return generator.standard_normal((batch, width)).astype("float32"), generator.integers(0, 10, batch)


def repeated(batch: tuple[np.ndarray, np.ndarray], steps: int) -> tf.data.Dataset:
    """
    Return an epoch of the same batch.

    tf.data's own tuning sleeps for 10, 20, 40 ... ms at a time, and the end of an epoch may wait for it.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return tf.data.Dataset.from_tensors(batch).repeat(steps).with_options(options)


def fits(model: tf.keras.Model, data: tf.data.Dataset) -> Callable[[], object]:
    """Return a call that trains a model for an epoch."""
    return lambda: model.fit(data, verbose=0, epochs=1)


def wrapped() -> dict[str, float]:
    """Steps of about 1 ms on one process with plain and wrapped optimizers; two of each, as equal ones differ."""
    data = repeated(batches(256, 64), 200)
    calls = {}
    for copy in (1, 2):
        calls[f"plain{copy}"] = fits(keras_model(256, 2, tf.keras.optimizers.Adam()), data)
        calls[f"wrapped{copy}"] = fits(keras_model(256, 2, hvd.DistributedOptimizer(tf.keras.optimizers.Adam())), data)
    rounds = rounds_s(calls, 8, 1)
    # What disturbs only adds, so the quicker rounds tell more than the middle ones.
    plain, distributed = (
        statistics.quantiles([times[f"{kind}{copy}"] for times in rounds for copy in (1, 2)])[0]
        for kind in ("plain", "wrapped")
    )
    return {"wrapped": 100 * (distributed / plain - 1)}


class Beside(tf.keras.layers.Layer):
    """Passes its input on; backward it waits, as a process does for an accelerator that computes a gradient."""

    def __init__(self, seconds: float):
        super().__init__()
        self.seconds = seconds

    def call(self, x):
        """Wait in the gradient only."""

        def wait(gradient):
            time.sleep(self.seconds)
            return gradient

        @tf.custom_gradient
        def passed_on(x):
            def backward(gradient):
                waited = tf.numpy_function(wait, [gradient], gradient.dtype)
                return tf.ensure_shape(waited, gradient.shape)

            return tf.identity(x), backward

        return passed_on(x)


def vgg_like(waits_s: float, optimizer: tf.keras.optimizers.Optimizer) -> tf.keras.Model:
    """As in VGG, the first layers take the time and the last ones have the weights: 34 MB, for a batch of one."""
    layers = []
    for _ in range(4):
        layers += [tf.keras.layers.Dense(256, activation="relu"), Beside(waits_s / 4)]
    layers += [tf.keras.layers.Dense(2048, activation="relu") for _ in range(3)]
    return classifier(256, layers, optimizer, jit_compile=False)


def hidden() -> dict[str, float]:
    """A step with and without reduction, and the reduction alone; the backward pass runs beside the cores."""
    steps = 10
    plain = vgg_like(0.05, tf.keras.optimizers.SGD(0.01))
    distributed = vgg_like(0.05, hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)))
    data = repeated(batches(256, 1), steps)

    def make():
        return [variable * 1.0001 for variable in plain.trainable_variables]

    reduce = tf.function(
        lambda: one_of_each([hvd.allreduce(g, name=f"alone{i}") for i, g in enumerate(make())]), autograph=False
    )
    nothing = tf.function(lambda: one_of_each(make()), autograph=False)
    calls = {
        "plain": fits(plain, data),
        "distributed": fits(distributed, data),
        "reduce": lambda: [reduce() for _ in range(steps)],
        "nothing": lambda: [nothing() for _ in range(steps)],
    }
    rounds = rounds_s(calls, 5, 1)
    reduction = median_of(rounds, lambda times: (times["reduce"] - times["nothing"]) / steps)
    more = median_of(rounds, lambda times: (times["distributed"] - times["plain"]) / steps)
    return {"hidden": 100 * (1 - more / reduction)}


class Meet(tf.keras.callbacks.Callback):
    """Lets the ranks wait for each other after every step, as any reduction does, and moves no data."""

    def on_train_batch_end(self, batch, logs=None):
        """Wait."""
        hvd.barrier()


def efficiency() -> dict[str, float]:
    """A compute-heavy fit on each process while the other one waits, on both, and on both without reducing."""
    steps = 5
    data = repeated(batches(768, 512), steps)
    mine = [hvd.add_process_set([rank]) for rank in range(hvd.size())][hvd.rank()]
    alone = keras_model(768, 4, hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01), process_set=mine))
    both = keras_model(768, 4, hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)))

    def in_turn():
        for rank in range(hvd.size()):
            if rank == hvd.rank():
                fits(alone, data)()
            hvd.barrier()

    calls = {
        "in_turn": in_turn,
        "both": fits(both, data),
        "unreduced": lambda: alone.fit(data, verbose=0, epochs=1, callbacks=[Meet()]),
    }
    rounds = rounds_s(calls, 5, 1)
    return {
        "efficiency": 100 * median_of(rounds, lambda times: times["in_turn"] / hvd.size() / times["both"]),
        "unreduced": 100 * median_of(rounds, lambda times: times["in_turn"] / hvd.size() / times["unreduced"]),
    }


def main() -> None:
    """Be a rank."""
    tf.keras.utils.set_random_seed(0)  # models begin alike on all ranks
    tf.config.threading.set_intra_op_parallelism_threads(1)
    if sys.argv[1] == "efficiency":  # else one process would use both cores
        tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd.init(process_sets="dynamic")
    result = {}
    for what in sys.argv[1].split(","):
        result |= globals()[what]()
    if hvd.rank() == 0:
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
