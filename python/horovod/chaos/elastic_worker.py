# SPDX-License-Identifier: Apache-2.0
"""
A rank of an elastic job under faults: a small training loop that writes down what it does.

Each process appends lines of JSON to a file of its own, each by one write, so a killed process has written all that it
did: before each step the samples that it takes, after each commit a digest of the weights.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import time
from typing import Any, Callable

import numpy as np

BATCH = 4
FEATURES = 8


class Diary:
    """Writes down what this process does."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._file = os.open(folder / f"{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, event: str, **facts: Any) -> None:
        """Append a line."""
        from horovod.common import membership

        view = membership.view()
        where = {"generation": view.generation, "rank": view.rank, "size": view.size} if view else {}
        line = {"event": event, "pid": os.getpid(), "time": time.monotonic(), **where, **facts}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def hang_if_asked(self) -> None:
        """Hang in the program while the one who injects faults wants that."""
        gate = self._folder / f"hang-{os.getpid()}"
        if gate.exists():
            self.write("hang")
            while gate.exists():
                time.sleep(0.01)

    def may_finish(self) -> bool:
        """Whether enough faults have happened."""
        return (self._folder / "finish").exists()


def inputs_of(samples: list[int]) -> np.ndarray:
    """Return the features of samples."""
    return np.sin(np.outer(np.asarray(samples) + 1.0, np.arange(1, FEATURES + 1))).astype(np.float32)


def digest_of(arrays: list[np.ndarray]) -> str:
    """Return a few characters that stand for the bits of arrays."""
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


def with_numpy() -> tuple[Any, Callable, Callable]:
    """Return a state, a function that does a step, and one that returns the weights."""
    import horovod.numpy as hvd

    weights = np.zeros(FEATURES, np.float32)
    state = hvd.elastic.NumpyState({"weights": weights}, **_progress(hvd))

    def step(samples: list[int]) -> None:
        inputs = inputs_of(samples)
        weights[:] -= 0.1 * hvd.allreduce((inputs @ weights - 1.0) @ inputs / BATCH, name="gradient")

    return state, step, lambda: [weights]


def with_torch() -> tuple[Any, Callable, Callable]:
    """Return the same for PyTorch."""
    import torch

    import horovod.torch as hvd

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, FEATURES), torch.nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, **_progress(hvd))

    def step(samples: list[int]) -> None:
        optimizer.zero_grad()
        ((model(torch.from_numpy(inputs_of(samples))) - 1.0) ** 2).mean().backward()
        optimizer.step()

    return state, step, lambda: [tensor.numpy() for tensor in model.state_dict().values()]


def with_jax() -> tuple[Any, Callable, Callable]:
    """Return the same for JAX."""
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    state = hvd.elastic.JaxState(weights=jnp.zeros(FEATURES), **_progress(hvd))

    @jax.jit
    def next_weights(weights: Any, inputs: Any) -> Any:
        gradient = jax.grad(lambda weights: ((inputs @ weights - 1.0) ** 2).mean())(weights)
        # Not reduced but gathered: so the program holds the number of ranks, and another number needs another program.
        return weights - 0.05 * hvd.allgather(gradient[None], name="gradients").mean(0)

    def step(samples: list[int]) -> None:
        state.weights = next_weights(state.weights, inputs_of(samples))

    return state, step, lambda: [np.asarray(state.weights)]


def with_tape() -> tuple[Any, Callable, Callable]:
    """Return the same for a tape of TensorFlow."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    model = tf.keras.Sequential([tf.keras.Input([FEATURES]), tf.keras.layers.Dense(FEATURES), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.Adam(0.01)
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, **_progress(hvd))

    @tf.function(reduce_retracing=True)
    def compute(inputs: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(inputs, training=True) - 1.0) ** 2)
        tape = hvd.DistributedGradientTape(tape)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

    def step(samples: list[int]) -> None:
        compute(tf.constant(inputs_of(samples)))

    return state, step, lambda: [np.asarray(variable) for variable in [*model.variables, *optimizer.variables]]


LOOPS = {"numpy": with_numpy, "torch": with_torch, "jax": with_jax, "tape": with_tape}


def _progress(hvd: Any) -> dict[str, Any]:
    from horovod.common.elastic_sampler import ElasticSampler

    return {"sampler": ElasticSampler(range(_samples), seed=3, exact=False), "finished": False}


_samples = 0


def train(diary: Diary, loop: str, pause_s: float) -> None:
    """Train until the one who injects faults has enough."""
    import horovod.numpy as hvd
    from horovod.common.elastic import run

    state, step, weights = LOOPS[loop]()
    state.register_reset_callbacks([lambda: diary.write("reset")])

    @run
    def rounds(state: Any) -> None:
        diary.write("enter", number=state._number, digest=digest_of(weights()))
        sampler = state.sampler
        while not state.finished:
            rest = list(sampler)
            for first in range(0, len(rest), BATCH):
                samples = rest[first : first + BATCH]
                diary.hang_if_asked()
                diary.write("step", number=state._number + 1, epoch=sampler.epoch, samples=samples)
                step(samples)
                diary.write("stepped")
                time.sleep(pause_s)
                sampler.record_batch(first, BATCH)
                if sampler.processed_num == _samples:
                    sampler.set_epoch(sampler.epoch + 1)
                    state.finished = bool(hvd.allreduce(np.float32(diary.may_finish()), op=hvd.Min, name="finish"))
                state.commit()
                diary.write("commit", number=state._number, digest=digest_of(weights()))

    rounds(state)
    diary.write("done", number=state._number, digest=digest_of(weights()))


def train_keras(diary: Diary, pause_s: float) -> None:
    """Do the same with `fit` of Keras and its three callbacks."""
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    class State(hvd.elastic.KerasState):
        def commit(self) -> None:
            diary.write("stepped")
            super().commit()
            diary.write("commit", number=self._number, digest=digest())

    class Model(tf.keras.Sequential):
        def train_step(self, data: Any) -> Any:
            tf.numpy_function(note, [data[0]], [])
            inputs = tf.ensure_shape(tf.numpy_function(inputs_of, [data[0]], tf.float32), [None, FEATURES])
            return super().train_step((inputs, tf.ones_like(inputs[:, :1])))

    def note(samples: np.ndarray) -> None:
        diary.hang_if_asked()
        diary.write("step", number=state._number + 1, epoch=state.epoch, samples=samples.tolist())
        time.sleep(pause_s)

    def digest() -> str:
        return digest_of([np.asarray(variable) for variable in [*model.variables, *model.optimizer.variables]])

    model = Model([tf.keras.Input([FEATURES]), tf.keras.layers.Dense(FEATURES), tf.keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
    state = State(model, batch=0, epoch=0, processed_num=0)
    state.register_reset_callbacks([lambda: diary.write("reset")])
    callbacks = [
        hvd.elastic.CommitStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
    ]
    data = tf.data.Dataset.range(_samples).map(lambda sample: (sample,))

    @hvd.elastic.run
    def epochs(state: Any) -> None:
        diary.write("enter", number=state._number, digest=digest())
        mine = hvd.elastic.shard(data, state, batch_size=BATCH, shuffle=_samples, seed=3)
        finished = False
        while not finished:
            model.fit(
                mine, initial_epoch=state.epoch, epochs=state.epoch + 1, callbacks=callbacks, shuffle=False, verbose=0
            )
            finished = bool(hvd.allreduce(float(diary.may_finish()), op=hvd.Average) == 1)

    epochs(state)
    diary.write("done", number=state._number, digest=digest())


def main() -> None:
    """Command line, as elastic.py gives it."""
    global _samples
    parser = argparse.ArgumentParser(prog="python -m horovod.chaos.elastic_worker")
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--loop", choices=(*LOOPS, "keras"), default="numpy")
    parser.add_argument("--samples", type=int, default=60, help="of an epoch")
    parser.add_argument("--pause", type=float, default=0.005, help="seconds that a step computes")
    arguments = parser.parse_args()
    _samples = arguments.samples
    diary = Diary(arguments.folder)
    import horovod.numpy as hvd

    hvd.init()
    if arguments.loop == "keras":
        train_keras(diary, arguments.pause)
    else:
        train(diary, arguments.loop, arguments.pause)


if __name__ == "__main__":
    main()
