# SPDX-License-Identifier: Apache-2.0
"""The variable's path beside the name of its gradient: in timelines and their report, stall reports and errors."""

from __future__ import annotations

import pytest
from ranks import in_one_start


@in_one_start(2)
def test_gradients_carry_the_path_of_their_variable_in_timelines_and_errors():
    import collections
    import json
    import pathlib
    import tempfile

    import horovod.tensorflow as hvd
    import horovod.tensorflow.keras as hvd_keras
    import tensorflow as tf
    from horovod.timeline_report import operations_of

    folder = pathlib.Path(hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None))
    hvd.start_timeline(str(folder / "t.json"))
    body, head = tf.Variable([1.0, 2.0], name="body/kernel"), tf.Variable([3.0], name="head/bias")
    table = tf.Variable(tf.ones([5, 2]), name="table")

    def step():
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(body) * tf.reduce_sum(head) + tf.reduce_sum(tf.gather(table, [hvd.rank()]))
        return tape.gradient(loss, [body, head, table])

    step()
    tf.function(step)()
    layer = tf.keras.layers.Dense(1, name="dense")
    layer.build([None, 2])
    optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))

    def apply():
        optimizer.apply([tf.ones([2, 1]), tf.ones([1])], layer.trainable_variables)

    apply()
    tf.function(apply)()
    hvd.stop_timeline()
    if hvd.rank() == 0:
        events = json.loads((folder / "t.json").read_text())
        names = [one.name for one in operations_of(events, 0, 0.0) if one.name.endswith(")")]
        paths = collections.Counter(name.split(" ")[1] for name in names)
        dense = ("(body/kernel:0)", "(head/bias:0)", "(dense/kernel)", "(dense/bias)")
        assert paths == {**dict.fromkeys(dense, 2), "(table:0)": 4}, names  # values and indices

    @tf.function
    def differs():
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(part)
        return tape.gradient(loss, [part])

    part = tf.Variable([1.0] * (1 + hvd.rank()), name="part")
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"grad_0' \(part:0\)"):
        differs()


@in_one_start(2, env={"HOROVOD_STALL_CHECK_TIME_SECONDS": "0.5", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "1"})
def test_stall_reports_carry_it_and_name_the_commonest_cause():
    import os
    import tempfile

    import horovod.tensorflow as hvd
    import tensorflow as tf

    body = tf.Variable([1.0, 2.0], name="body/kernel")
    with tempfile.TemporaryFile() as log:
        stderr = os.dup(2)
        os.dup2(log.fileno(), 2)
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(body)
        try:
            if hvd.rank() == 0:
                tape.gradient(loss, body)
            else:  # has no more batches
                hvd.allreduce(tf.ones([3]), name="metric")
        except tf.errors.OpError:
            pass
        finally:
            os.dup2(stderr, 2)
        log.seek(0)
        text = log.read().decode()
    if hvd.rank() == 0:
        assert "(body/kernel:0)" in text
        assert "different numbers of batches" in text
        assert "steps_per_epoch" in text
