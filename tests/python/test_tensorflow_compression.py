# SPDX-License-Identifier: Apache-2.0
"""Compression.fp16 and .bf16 of TensorFlow's tensors, which the library casts on their way; and one's own."""

from __future__ import annotations

import numpy as np
import pytest
from ranks import in_one_start


def types_in(concrete):
    return [node.attr["DstT"].type for node in concrete.graph.as_graph_def().node if node.op == "Cast"]


@pytest.mark.row("k14")
@in_one_start(2)
def test_reductions_have_the_bits_of_casting():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    for compression, small in ((hvd.Compression.fp16, tf.float16), (hvd.Compression.bf16, tf.bfloat16)):
        for dtype in (tf.float32, tf.float64):
            for count in (1, 1000, 100_003):
                values = np.random.default_rng([hvd.rank(), count]).standard_normal(count).astype("f4")
                mine = tf.cast(tf.constant(values), dtype)
                for op in (hvd.Sum, hvd.Average, hvd.Max):
                    wanted = tf.cast(hvd.allreduce(tf.cast(mine, small), op=op), dtype).numpy()
                    reduce = lambda one, op=op: hvd.allreduce(one, op=op, compression=compression)  # noqa: B023, E731
                    for found in (reduce(mine), tf.function(reduce)(mine)):
                        assert found.dtype == dtype
                        assert np.array_equal(found.numpy(), wanted)
        whole, text = tf.constant([70_001]), tf.ones([2], small)
        found = hvd.grouped_allreduce([mine, whole, text], op=hvd.Sum, compression=compression)
        assert [one.dtype for one in found] == [tf.float64, tf.int32, small]
        assert found[1].numpy().tolist() == [140_002]


@in_one_start(2)
def test_graphs_hold_no_casts():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    class Mine(hvd.Compression.fp16):
        pass

    def casts(compression, **more):
        function = tf.function(lambda one: hvd.allreduce(one, compression=compression, **more))
        return len(types_in(function.get_concrete_function(tf.TensorSpec([3]))))

    assert casts(hvd.Compression.fp16) == casts(hvd.Compression.bf16) == 0
    assert casts(Mine) == 2
    assert casts(hvd.Compression.fp16, op=hvd.Adasum) == 2


@in_one_start(2)
def test_gradients_of_reductions_travel_likewise():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    def gradient(compression):
        with tf.GradientTape() as tape:
            tape.watch(one := tf.constant([1.0, 2.0]))
            # One's own bits beyond those of float16 are lost on the way forth, and the factor's on the way back.
            loss = tf.reduce_sum(hvd.allreduce(one, op=hvd.Sum, compression=compression) * (1.0 + 2.0**-12))
        return tape.gradient(loss, one).numpy().tolist()

    assert gradient(hvd.Compression.none) == [2.0 + 2.0**-11] * 2
    assert gradient(hvd.Compression.fp16) == [2.0] * 2


def sent_bytes(hvd):
    return sum(hvd.counters()["peers"][1 - hvd.rank()]["sent_bytes"].values())


@in_one_start(2)
def test_half_of_the_bytes_travel():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    sent = []
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
        before = sent_bytes(hvd)
        hvd.allreduce(tf.ones([1 << 20]), compression=compression)
        sent.append(sent_bytes(hvd) - before)
    assert 1.9 < sent[0] / sent[1] < 2.1
    assert 1.9 < sent[0] / sent[2] < 2.1
