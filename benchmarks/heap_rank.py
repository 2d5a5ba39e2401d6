# SPDX-License-Identifier: Apache-2.0
"""
A process of benchmarks/heap.py: measures one thing or several and prints them as JSON on rank 0.

What disturbs only adds, so each figure is that of the best round, the median of a round's calls.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from pathlib import Path

import tensorflow as tf
import tensorflow_rank as ranks

MIB = 1 << 20
STEPS = 10  # of an epoch
EPOCHS = 6
WIDTH, DEPTH, BATCH = 1024, 8, 32  # 34 MB of gradients


def added() -> dict[str, float]:
    """What an allreduce adds to a function that makes its tensor."""
    import horovod.tensorflow as hvd

    scale = tf.constant(1.0001)
    result = {}
    for size, repetitions in ((1, 45), (4, 21), (16, 9)):
        source = tf.Variable(tf.random.normal([size * MIB // 4]))
        nothing = tf.function(lambda s, v=source: (v * s)[0], autograph=False)
        reduced = tf.function(lambda s, v=source, n=size: hvd.allreduce(v * s, name=f"added{n}")[0], autograph=False)
        calls = {"nothing": lambda call=nothing: call(scale), "reduced": lambda call=reduced: call(scale)}
        rounds = ranks.rounds_s(calls, 8, repetitions)
        result[f"added{size}"] = best_ms(rounds, "reduced") - best_ms(rounds, "nothing")
    return result


def best_ms(rounds: list[dict[str, float]], name: str) -> float:
    """Return a call's time in its best round."""
    return 1e3 * min(times[name] for times in rounds)


def resnet50() -> dict[str, float]:
    """The gradient set of ResNet-50, one by one and as a group."""
    rounds = ranks.resnet50_rounds()
    nothing = best_ms(rounds, "nothing")
    return {name: best_ms(rounds, name) - nothing for name in ("single", "grouped")}


def step_ms(model: tf.keras.Model, data: tf.data.Dataset, steps: int = STEPS) -> float:
    """Return a step's time in the best epoch."""
    times = []
    for _ in range(EPOCHS):
        begin = time.perf_counter()
        model.fit(data, verbose=0, epochs=1)
        times.append((time.perf_counter() - begin) / steps * 1e3)
    return min(times)


def fit() -> dict[str, float]:
    """A step of `fit`, whose ranks share the gradients."""
    import horovod.tensorflow as hvd

    model = ranks.keras_model(WIDTH, DEPTH, hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)))
    return {"fit": step_ms(model, ranks.repeated(ranks.batches(WIDTH, BATCH), STEPS))}


def plain() -> dict[str, float]:
    """The same step of a process that knows of no other."""
    model = ranks.keras_model(WIDTH, DEPTH, tf.keras.optimizers.SGD(0.01))
    return {"plain": step_ms(model, ranks.repeated(ranks.batches(WIDTH, BATCH), STEPS))}


def mirrored() -> dict[str, float]:
    """The same step under MultiWorkerMirroredStrategy, which Keras 3 does not have: with tf_keras."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    data = ranks.repeated(ranks.batches(WIDTH, BATCH), STEPS).with_options(options)
    with strategy.scope():
        model = ranks.keras_model(WIDTH, DEPTH, tf.keras.optimizers.SGD(0.01))
    return {"mirrored": step_ms(model, data)}


def demo() -> dict[str, float]:
    """A step of the network that `make demo` trains."""
    import horovod.tensorflow as hvd

    path = Path(__file__).resolve().parent.parent / "examples" / "tensorflow" / "keras_fit.py"
    spec = importlib.util.spec_from_file_location("keras_fit", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    (pictures, labels), _ = example.load(hvd.rank(), hvd.size())
    model = example.network()
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(1e-3)), loss)
    steps = 100
    return {f"demo{hvd.size()}": step_ms(model, ranks.repeated((pictures[:36], labels[:36]), steps), steps)}


def main() -> None:
    """Be a process."""
    wanted = sys.argv[1].split(",")
    tf.keras.utils.set_random_seed(0)  # models begin alike on all ranks
    tf.config.threading.set_intra_op_parallelism_threads(1)
    if {"fit", "plain", "demo"} & set(wanted):  # else one process would use both cores
        tf.config.threading.set_inter_op_parallelism_threads(1)
    rank = 0
    if "TF_CONFIG" in os.environ:
        rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    elif wanted != ["plain"]:
        import horovod.tensorflow as hvd

        hvd.init()
        rank = hvd.rank()
    result = {}
    for what in wanted:
        result |= globals()[what]()
    if rank == 0:
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
