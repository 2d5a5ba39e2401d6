# SPDX-License-Identifier: Apache-2.0
"""A rank of benchmarks/training.py in TensorFlow: a tf.function per step, an hvd.allreduce per gradient."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import horovod.tensorflow as hvd
import tensorflow as tf
from models import MODELS, ready_at
from training_turns import in_turns

SIDE = 192  # a multiplication of some 200 microseconds, many times what a turn of a loop costs


def multiplications(state: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """So many of them, each of which needs the one before."""
    factor = tf.fill([SIDE, SIDE], 1.0 / SIDE)
    turn = lambda i, product: (i + 1, tf.matmul(product, factor))  # noqa: E731
    return tf.while_loop(lambda i, _: i < count, turn, [tf.constant(0), state], parallel_iterations=1)[1]


class Core:
    """Compute on this rank's core: a fixed number of multiplications, however long they take."""

    def __init__(self, seconds: float, shares: list[float]) -> None:
        sample = 100
        measure = tf.function(lambda: multiplications(tf.ones([SIDE, SIDE]), tf.constant(sample)), autograph=False)
        each = statistics.median(slowest(elapsed(measure)) for _ in range(5)) / sample
        done = [int(share * seconds / each) for share in shares]
        self._counts = tf.constant([now - before for before, now in zip([0, *done], done)])
        self._state: tf.Tensor | None = None

    def begin(self) -> None:
        """Called while a step is traced; nothing happens when one starts."""
        self._state = tf.ones([SIDE, SIDE])

    def started(self) -> None:
        pass

    def until(self, index: int) -> tf.Tensor:
        """What is there when the work before this gradient is done."""
        self._state = multiplications(self._state, self._counts[index])
        return self._state


class Accelerator:
    """Compute elsewhere: a thread waits until a gradient is due, and the cores are free."""

    def __init__(self, seconds: float, shares: list[float]) -> None:
        self._due = [share * seconds for share in shares]
        self._start = 0.0

    def begin(self) -> None:
        pass

    def started(self) -> None:
        self._start = time.perf_counter()

    def until(self, index: int) -> tf.Tensor:
        def wait() -> bool:
            left = self._start + self._due[index] - time.perf_counter()
            if left > 0:
                time.sleep(left)
            return True

        return tf.numpy_function(wait, [], tf.bool)


def elapsed(action: Callable[[], object]) -> float:
    """Seconds, from a common start."""
    hvd.barrier()
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def slowest(seconds: float) -> float:
    return float(hvd.allreduce(tf.constant(seconds, tf.float64), op=hvd.Max, name="training.agree"))


class Made:
    """Gradients that a step writes itself, as where compute is on this rank's core."""

    def __init__(self, elements: list[int], value: float) -> None:
        self._elements = elements
        self._value = tf.Variable(value)  # a constant would be folded into the function

    def prepare(self) -> None:
        pass

    def gradient(self, index: int) -> tf.Tensor:
        return tf.fill([self._elements[index]], self._value.read_value())


class Staged:
    """
    Gradients that were written beside this rank's core, as by an accelerator: `prepare` does it, before a step.

    A step takes each out of its place, so that nobody else has it and it may be reduced where it is.
    """

    places = 0

    def __init__(self, elements: list[int], value: float) -> None:
        self._name = f"gradients{Staged.places}."
        Staged.places += 1

        @tf.function(autograph=False)
        def prepare(value):
            for index, count in enumerate(elements):
                tf.raw_ops.Stage(values=[tf.fill([count], value)], shared_name=f"{self._name}{index}")

        self.prepare = lambda: prepare(tf.constant(value))

    def gradient(self, index: int) -> tf.Tensor:
        return tf.raw_ops.Unstage(dtypes=[tf.float32], shared_name=f"{self._name}{index}")[0]


class Training:
    """The gradients of a network, in the order in which they become ready."""

    def __init__(self, model: str, source: type[Made | Staged]) -> None:
        tensors = MODELS[model]()
        self.shares = ready_at(tensors)
        self._source = source([tensor.elements for tensor in reversed(tensors)], float(hvd.rank()))
        self._take = self._function(None, False)
        self._communicate = self._function(None, True)

    def _gradients(self, compute: Core | Accelerator | None, reduce: bool) -> list[tf.Tensor]:
        """In a function: each is there when compute has come to it, and is reduced at once."""
        results, before, waited = [], 0.0, []
        if compute is not None:
            compute.begin()
        for index, share in enumerate(self.shares):
            if compute is not None and share > before:
                waited, before = [compute.until(index)], share
            with tf.control_dependencies(waited):
                gradient = self._source.gradient(index)
            results.append(hvd.allreduce(gradient, op=hvd.Average, name=f"grad{index}") if reduce else gradient)
        return results

    def _function(self, compute: Core | Accelerator | None, reduce: bool) -> Callable[[], float]:
        """Return what times a call, in seconds of the slowest rank."""

        @tf.function(autograph=False)
        def step():
            return tf.add_n([result[0] for result in self._gradients(compute, reduce)])

        def call() -> None:
            if compute is not None:
                compute.started()
            float(step())

        def timed() -> float:
            self._source.prepare()
            return slowest(elapsed(call))

        return timed

    def check(self) -> None:
        expected = (hvd.size() - 1) / 2

        @tf.function(autograph=False)
        def equal():
            return tf.reduce_all([tf.reduce_all(result == expected) for result in self._gradients(None, True)])

        for _ in range(2):
            self._source.prepare()
            if not equal():
                sys.exit(f"wrong result on rank {hvd.rank()}")

    def steps(self, compute: Core | Accelerator) -> dict[str, Callable[[], float]]:
        """With and without reductions, traced."""
        functions = {"compute": self._function(compute, False), "step": self._function(compute, True)}
        for function in functions.values():
            function()
        return functions

    def communication(self) -> float:
        """Making or taking the gradients is no part of it, but a function must have what it reduces."""
        made = self._take()
        return self._communicate() - made


def main() -> None:
    wanted = json.loads(sys.argv[1])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    result = {}
    for name in wanted["compute"]:
        kind, source = {"core": (Core, Made), "accelerator": (Accelerator, Staged)}[name]
        training = Training(wanted["model"], source)
        training.check()
        training.communication()
        alone = statistics.median(training.communication() for _ in range(3))
        steps = training.steps(kind(wanted["ratio"] * alone, training.shares))
        figures = {"compute": steps["compute"], "communication": training.communication, "step": steps["step"]}
        result[name] = in_turns(wanted["steps"], figures)
    if hvd.rank() == 0:
        print(json.dumps(result), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
