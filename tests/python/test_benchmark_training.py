# SPDX-License-Identifier: Apache-2.0
"""The ranks of benchmarks/training.py: who writes the gradients, and when. Nothing is measured here."""

import pathlib
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import models  # noqa: E402
import training_rank  # noqa: E402

OLD = 7.0  # what an earlier reduction might have left; rank 0 writes 0


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """A network of three gradients."""
    monkeypatch.setitem(models.MODELS, "tiny", lambda: [models.Tensor(4, 1), models.Tensor(2, 1), models.Tensor(3, 2)])


class Watched:
    """A kind of compute that notes what the gradients hold when each is due."""

    def __init__(self, writes: bool) -> None:
        self.writes = writes
        self.seen: list[list[float]] = []
        self.gradients: list = []

    def begin(self) -> None:
        pass

    def until(self, share: float) -> None:
        self.seen.append([float(gradient[0]) for gradient in self.gradients])


@pytest.mark.parametrize("reduce", [False, True])
def test_an_accelerator_has_written_all_before_the_step(engine, reduce):
    training = training_rank.Training("tiny", arena=False)
    compute = Watched(writes=training_rank.Accelerator.writes)
    compute.gradients = training._gradients
    for gradient in training._gradients:
        gradient.fill(OLD)
    assert training.timed_step(compute, reduce) > 0
    assert compute.seen == [[0, 0, 0]] * 3


def test_a_core_writes_each_when_it_is_due(engine):
    training = training_rank.Training("tiny", arena=False)
    compute = Watched(writes=training_rank.Core.writes)
    compute.gradients = training._gradients
    for gradient in training._gradients:
        gradient.fill(OLD)
    training.timed_step(compute, True)
    assert compute.seen == [[OLD, OLD, OLD], [0, OLD, OLD], [0, 0, OLD]]


@pytest.mark.parametrize(("kind", "source"), [("Core", "Made"), ("Accelerator", "Staged")])
def test_steps_of_tensorflow_have_their_gradients(engine, kind, source):
    pytest.importorskip("tensorflow")
    import training_tensorflow_rank as rank

    training = rank.Training("tiny", getattr(rank, source))
    training.check()
    steps = training.steps(getattr(rank, kind)(0.001, training.shares))
    assert min(time() for time in steps.values()) > 0


def test_a_staged_gradient_is_taken_once(engine):
    tf = pytest.importorskip("tensorflow")
    import training_tensorflow_rank as rank

    staged = rank.Staged([2, 3], 5.0)
    staged.prepare()
    staged.prepare()
    assert [staged.gradient(i).numpy().tolist() for i in (1, 0)] == [[5, 5, 5], [5, 5]]
    name = f"{staged._name}0"
    assert tf.raw_ops.StageSize(dtypes=[tf.float32], shared_name=name) == 1
