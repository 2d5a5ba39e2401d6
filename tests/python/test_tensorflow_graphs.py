# SPDX-License-Identifier: Apache-2.0
"""
What TensorFlow makes of graphs before it runs them: it folds, merges and removes nodes, on each rank for itself.

A collective that is removed on one rank only leaves the others waiting, so ranks compare how many they have executed.
"""

from __future__ import annotations

import functools

import numpy as np
from ranks import in_one_start

# A rank that waits for a collective that another one has removed fails soon, and with it the test.
SOON = {"HOROVOD_OP_TIMEOUT_SECONDS": "20"}


def executed():
    """Return how many collectives this rank has executed, by kind."""
    import horovod.tensorflow as hvd

    return {kind: one["completed"] for kind, one in hvd.counters()["operations"].items() if one["completed"]}


def builders(hvd, tf, among):
    """Return what makes a scalar of a tensor of 2 x 3, by name; each holds one or more collectives."""
    last = hvd.size() - 1
    total = tf.reduce_sum

    def gathered_in_parts(x):
        # Rank 0 contributes no row.
        return total(hvd.allgather(x[: hvd.rank()], process_set=among) ** 2)

    def sent(x):
        return total(hvd.alltoall(tf.tile(x, [among.size(), 1]), process_set=among) ** 2)

    def chosen(x):
        return tf.cond(total(x) > -1e9, lambda: total(hvd.broadcast(x, 0, process_set=among) ** 2), lambda: total(x))

    def repeated(x):
        return tf.while_loop(
            lambda i, _: i < 2,
            lambda i, sum: (i + 1, sum + total(hvd.broadcast(x + sum, last, process_set=among))),
            (0, 0.0),
        )[1]

    return {
        "allreduce": lambda x: total(hvd.allreduce(x, process_set=among) ** 2),
        "grouped_allreduce": lambda x: total(hvd.grouped_allreduce([x, 2 * x], process_set=among)[1] ** 2),
        "allgather": lambda x: total(hvd.allgather(x, process_set=among) ** 2),
        "allgather of nothing": gathered_in_parts,
        "grouped_allgather": lambda x: total(hvd.grouped_allgather([x, 2 * x], process_set=among)[0] ** 2),
        "broadcast": lambda x: total(hvd.broadcast(x, last, process_set=among) ** 2),
        "broadcast, a linear use": lambda x: total(hvd.broadcast(x, last, process_set=among)),
        "alltoall": sent,
        "reducescatter": lambda x: total(hvd.reducescatter(x, process_set=among) ** 2),
        "grouped_reducescatter": lambda x: total(hvd.grouped_reducescatter([x, 2 * x], process_set=among)[1] ** 2),
        "a factor of zero": lambda x: total(hvd.broadcast(x, 0, process_set=among)) * float(hvd.rank()),
        "only the shape": lambda x: total(x) * tf.cast(tf.shape(hvd.allreduce(x, process_set=among))[0], tf.float32),
        "cond": chosen,
        "while_loop": repeated,
        "equal operations": lambda x: total(hvd.allreduce(x, process_set=among) + hvd.allreduce(x, process_set=among)),
    }


def value_and_slope(tf, function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = function(x)
    slope = tape.gradient(value, x)
    return (value, slope) if slope is not None else (value, tf.zeros([]))


def run_in_session(tf, function, static):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [2, 3] if static else [None, 3])
        value = function(x)
        wanted = [value, *(one for one in tf.gradients(value, [x]) if one is not None)]
        # First all, then the gradient alone: TensorFlow makes a graph of its own for each.
        for fetched in (wanted, wanted[-1]):
            session.run(fetched, {x: np.ones([2, 3], np.float32)})


def run_in_function(tf, function, static):
    step = tf.function(
        lambda x: value_and_slope(tf, function, x), input_signature=[tf.TensorSpec([2 if static else None, 3])]
    )
    step(tf.ones([2, 3]))


def compare(name, run):
    """Run it on the ranks that take part, if there is something to run, and compare what they have executed."""
    import horovod.numpy as hvd

    hvd.barrier()
    before = executed()
    problem = ""
    try:
        if run is not None:
            run()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    done = {kind: count - before.get(kind, 0) for kind, count in executed().items()}
    done = {kind: count for kind, count in done.items() if count}
    found = [one for one in hvd.allgather_object((run is not None, problem, done)) if one[0]]
    assert all(one == (True, "", found[0][2]) for one in found), f"{name}: {found}"


@in_one_start(3, env=SOON)
def test_every_rank_executes_the_same_collectives():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.shutdown()
    outer = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[outer])
    for among in (hvd.global_process_set, outer):
        for name, function in builders(hvd, tf, among).items():
            for run in (run_in_session, run_in_function):
                for static in (True, False):
                    compare(
                        f"{name} among {among}, {run.__name__}, static={static}",
                        functools.partial(run, tf, function, static) if among.included() else None,
                    )
