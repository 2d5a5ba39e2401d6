# SPDX-License-Identifier: Apache-2.0
"""Graphs and sessions of tf.compat.v1: whole programs, several passes per step, local variables."""

from __future__ import annotations

import json
import pathlib
import sys

import launching
import numpy as np
import pytest
from ranks import in_one_start

SCRIPT = pathlib.Path(__file__).with_name("tensorflow_v1_script.py")


def run_script(ranks, folder, last_step, disabled, passes=1):
    """Return what ranks reported, and all that each of them wrote."""
    command = [sys.executable, str(SCRIPT), str(folder), str(last_step), disabled, str(passes)]
    if ranks == 1:
        result = launching.run(command, launching.clean_environment(), timeout=240)
        outputs = [result.stdout + result.stderr]
    else:
        result = launching.horovodrun("-np", str(ranks), *command, timeout=240)
        lines = (result.stdout + result.stderr).splitlines(keepends=True)
        marks = [(f"[{rank}]<stdout>:", f"[{rank}]<stderr>:") for rank in range(ranks)]
        outputs = ["".join(line[len(mark[0]) :] for line in lines if line.startswith(mark)) for mark in marks]
    assert result.returncode == 0, result.stdout + result.stderr
    return [json.loads(next(line for line in text.splitlines() if line.startswith("{"))) for text in outputs], outputs


@pytest.mark.row("a1", "a2", "a3", "a5", "a6", "a8", "a9", "a10", "a11", "a14", "a15", "a18", "a20")
@pytest.mark.timeout(600)
def test_a_session_with_checkpoints_of_rank_0(tmp_path):
    reports, outputs = run_script(2, tmp_path, 10, "before")
    assert [(one["rank"], one["first"], one["last"]) for one in reports] == [(0, 0, 10), (1, 0, 10)]
    assert len({one["digest"] for one in reports}) == 1, "ranks have different weights"
    assert "Saving checkpoints for 0 into" in outputs[0]
    assert "Saving checkpoints" not in outputs[1]
    assert all("loss = " in text and "step = " in text for text in outputs)
    files = {file.name for file in tmp_path.iterdir()}
    assert "model.ckpt-10.index" in files
    # Rank 0 restores, and the hook carries everything to the other, the global step too.
    # Now with two passes per step, of which the checkpoint knows nothing.
    reports, _ = run_script(2, tmp_path, 15, "after", passes=2)
    assert [(one["first"], one["last"]) for one in reports] == [(10, 15)] * 2
    assert len({one["digest"] for one in reports}) == 1
    # The same program alone.
    (report,), _ = run_script(1, tmp_path, 17, "after")
    assert (report["size"], report["first"], report["last"]) == (1, 15, 17)


@pytest.mark.row("a17")
@in_one_start(2)
def test_several_passes_in_a_session():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    own = hvd.rank() + 1.0
    for average in (False, True):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            weights = tf.compat.v1.get_variable("weights", initializer=[0.0, 0.0])
            unused = tf.compat.v1.get_variable("unused", initializer=0.0)
            step = tf.compat.v1.train.create_global_step()
            factor = tf.compat.v1.placeholder(tf.float32, [])
            optimizer = hvd.DistributedOptimizer(
                tf.compat.v1.train.MomentumOptimizer(1.0, 0.0),
                backward_passes_per_step=3,
                average_aggregated_gradients=average,
            )
            loss = tf.reduce_sum(weights) * factor
            train = optimizer.minimize(loss, global_step=step, var_list=[weights, unused])
            session.run(tf.compat.v1.global_variables_initializer())
            for number in range(7):
                session.run(train, {factor: own * (number + 1)})
                passes = (number + 1) // 3 * 3
                total = sum(range(passes + 1)) * 1.5  # the average of ranks' factors
                assert np.allclose(session.run(weights), -total / (3 if average else 1)), number
                assert session.run(step) == number + 1
                assert session.run(optimizer._agg_helper.counter) == (number + 1) % 3


@pytest.mark.row("a17")
@in_one_start(2)
def test_several_passes_eagerly_and_in_a_function():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    own = hvd.rank() + 1.0
    for decorate in (tf.function, lambda function: function):
        weights = tf.Variable([0.0, 0.0])
        optimizer = hvd.DistributedOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2
        )

        @decorate
        def step(factor, optimizer=optimizer, weights=weights):
            optimizer.minimize(lambda: tf.reduce_sum(weights) * own * factor, var_list=[weights])

        seen = []
        for number in range(4):
            step(tf.constant(number + 1.0))
            seen.append(float(weights[0]))
        assert seen == [0.0, -4.5, -4.5, -15.0]


@pytest.mark.row("a4", "a19")
@in_one_start(2)
def test_the_wrapped_optimizer_is_inside():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        weights = tf.compat.v1.get_variable("weights", initializer=[1.0])
        inner = tf.compat.v1.train.AdamOptimizer(0.1)
        optimizer = hvd.DistributedOptimizer(inner)
        assert isinstance(optimizer, tf.compat.v1.train.Optimizer)
        assert optimizer._optimizer is inner
        pairs = optimizer.compute_gradients(weights * (hvd.rank() + 1.0))
        with tf.device("/cpu:0"):
            train = optimizer.apply_gradients(pairs, name="apply")
        session.run(tf.compat.v1.global_variables_initializer())
        assert session.run(pairs[0][0]).tolist() == [1.5]
        session.run(train)
        assert optimizer.get_slot_names() == inner.get_slot_names() == ["m", "v"]
        assert optimizer.get_slot(weights, "m") is inner.get_slot(weights, "m")
        assert optimizer.variables() == inner.variables()
        assert np.allclose(session.run(optimizer.get_slot(weights, "m")), 0.15)
        with pytest.raises(ValueError, match="twice"):
            hvd.DistributedOptimizer(optimizer)


@pytest.mark.row("g1", "g2", "g6", "g9")
@in_one_start(2)
def test_variables_of_one_rank():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    own = hvd.rank() + 1.0
    for scale in (True, False):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            shared = tf.compat.v1.get_variable("shared", initializer=[1.0])
            mine = tf.compat.v1.get_variable(f"mine{hvd.rank()}", initializer=[1.0] * (hvd.rank() + 1))
            optimizer = hvd.DistributedOptimizer(
                tf.compat.v1.train.GradientDescentOptimizer(1.0), scale_local_gradients=scale
            )
            optimizer.register_local_var(mine)
            loss = own * (tf.reduce_sum(mine) + tf.reduce_sum(shared))
            pairs = optimizer.compute_gradients(loss, [mine, shared])
            session.run(tf.compat.v1.global_variables_initializer())
            local, reduced = session.run([gradient for gradient, _ in pairs])
            assert reduced.tolist() == [1.5]
            assert local.tolist() == [own / 2 if scale else own] * (hvd.rank() + 1)


@pytest.mark.row("a12", "a18")
@in_one_start(2)
def test_every_rank_has_checkpoints_of_its_own():
    """Every rank has a folder of its own for checkpoints, and nobody asks for its rank."""
    import tempfile

    import horovod.tensorflow as hvd
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        weights = tf.compat.v1.get_variable("weights", initializer=[float(hvd.rank()), 2.0])
        step = tf.compat.v1.train.create_global_step()
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.AdagradOptimizer(0.01))
        train = optimizer.minimize(tf.reduce_sum(tf.square(weights)), global_step=step)
        hooks = [hvd.BroadcastGlobalVariablesHook(1), tf.compat.v1.train.StopAtStepHook(num_steps=3)]
        with tf.compat.v1.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
            while not session.should_stop():
                *_, found = session.run([train, weights])
        assert len(set(hvd.allgather_object(found.tobytes()))) == 1
        assert tf.train.latest_checkpoint(folder).endswith("model.ckpt-3")


@pytest.mark.row("k11")
@in_one_start(2)
def test_adasum_of_steps():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    def adasum(a, b):
        return a * (1 - a @ b / (2 * a @ a)) + b * (1 - a @ b / (2 * b @ b))

    for passes in (1, 2):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            weights = tf.compat.v1.get_variable("weights", initializer=np.array([1.0, 2.0]))
            gradients = np.array([[1.0, 0.5], [-0.25, 2.0]])
            optimizer = hvd.DistributedOptimizer(
                tf.compat.v1.train.MomentumOptimizer(0.1, 0.9), op=hvd.Adasum, backward_passes_per_step=passes
            )
            train = optimizer.minimize(tf.reduce_sum(weights * gradients[hvd.rank()]))
            session.run(tf.compat.v1.global_variables_initializer())
            for _ in range(passes):
                session.run(train)
            # With momentum the second step is 1.9 times the first.
            change = -0.1 * gradients * (1.0 if passes == 1 else 2.9)
            assert np.allclose(session.run(weights), np.array([1.0, 2.0]) + adasum(*change))
