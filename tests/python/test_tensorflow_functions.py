# SPDX-License-Identifier: Apache-2.0
"""Variables and objects of one rank on all; sparse tensors; handles; batch normalization of all ranks."""

from __future__ import annotations

import numpy as np
import pytest
from ranks import in_one_start


@pytest.mark.row("b6", "b7")
@in_one_start(2)
def test_variables_of_all_kinds():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    rank = hvd.rank()
    whole = ["uint8", "int8", "uint16", "int16", "int32", "int64", "uint32", "uint64"]
    dtypes = [*whole, "float16", "bfloat16", "float32", "float64", "bool", "complex64", "complex128"]
    for root in (0, 1):
        plain = [tf.Variable(tf.cast([rank, 1 - rank], dtype)) for dtype in dtypes]
        scalar, empty = tf.Variable(rank, dtype=tf.int64), tf.Variable(tf.zeros([0, 3]))
        dropout = tf.keras.layers.Dropout(0.5, seed=rank)  # has a state of uint32
        dense = tf.keras.layers.Dense(2)
        dense.build((None, 3))
        optimizer = tf.keras.optimizers.Adam(0.1 * (rank + 1))
        optimizer.build(dense.trainable_variables)
        state = [*dense.variables, *dropout.variables, *optimizer.variables]
        hvd.broadcast_variables([*plain, scalar, empty, *state], root_rank=root)
        for variable in plain:
            assert tf.cast(variable, tf.int32).numpy().tolist() == [root, 1 - root], variable.dtype
        assert scalar.numpy() == root
        values = [np.asarray(variable).tolist() for variable in state]
        assert values == hvd.broadcast_object(values, root_rank=root)
        if hasattr(tf.keras, "ops"):  # Keras 3, where the learning rate is one of the optimizer's variables
            assert np.isclose(float(optimizer.learning_rate), 0.1 * (root + 1))
    one = tf.Variable(float(rank))
    assert hvd.broadcast_([one], 1)[0] is one
    assert one.numpy() == 1.0
    hvd.broadcast_variables([], root_rank=0)
    with pytest.raises(TypeError, match="no variable"):
        hvd.broadcast_variables([tf.constant(1.0)], root_rank=0)
    with pytest.raises(TypeError, match="string"):
        hvd.broadcast_variables([tf.Variable("text")], root_rank=0)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="root rank"):
        hvd.broadcast_variables([one], root_rank=2)


@pytest.mark.row("b5")
@in_one_start(2)
def test_broadcast_in_a_function():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    weights, steps = tf.Variable(tf.fill([3], float(hvd.rank()))), tf.Variable(hvd.rank(), dtype=tf.int64)

    @tf.function
    def synchronize():
        hvd.broadcast_variables([weights, steps], root_rank=1)  # nobody uses a result of it

    synchronize()
    assert weights.numpy().tolist() == [1.0] * 3
    assert steps.numpy() == 1
    weights.assign_add(tf.fill([3], float(hvd.rank())))
    synchronize()  # again, not once per trace
    assert weights.numpy().tolist() == [2.0] * 3


@pytest.mark.row("b4", "b5", "b6", "b7", "b12")
@in_one_start(2)
def test_broadcast_after_the_first_batch():
    """As the published samples do it: by a Python boolean, with the optimizer's slots, after the gradients."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    tf.keras.utils.set_random_seed(hvd.rank())
    model = tf.keras.Sequential([tf.keras.layers.Dense(4, activation="relu"), tf.keras.layers.Dense(2)])
    optimizer = tf.optimizers.Adam(0.001 * hvd.size())
    loss_of = tf.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def one(rows, classes, spreads):
        with tf.GradientTape() as recorded:
            error = loss_of(classes, model(rows))
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(hvd.DistributedGradientTape(recorded).gradient(error, weights), weights))
        if spreads:
            for some in (model.variables, optimizer.variables):
                hvd.broadcast_variables(some, root_rank=0)

    random = np.random.default_rng(hvd.rank())
    for batch in range(5):
        rows, classes = random.normal(size=(6, 3)).astype("float32"), random.integers(0, 2, 6)
        one(tf.constant(rows), tf.constant(classes), batch == 0)
    assert same_on_all_ranks([*model.variables, *optimizer.variables])
    assert int(optimizer.iterations) == 5


@pytest.mark.row("b10", "b11", "k1")
@in_one_start(2)
def test_variables_that_one_rank_restored():
    import tempfile

    import horovod.tensorflow as hvd
    import tensorflow as tf

    def model_and_optimizer(seed):
        tf.keras.utils.set_random_seed(seed)
        model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
        optimizer = tf.optimizers.Adam(0.1)
        model(tf.ones([1, 3]))
        optimizer.build(model.trainable_variables)
        return model, optimizer

    with tempfile.TemporaryDirectory() as folder:
        trained, adam = model_and_optimizer(5)
        adam.apply_gradients([(tf.ones(one.shape), one) for one in trained.trainable_variables])
        wanted = [np.asarray(one) for one in [*trained.variables, *adam.variables]]
        model, optimizer = model_and_optimizer(6 + hvd.rank())
        if hvd.rank() == 0:
            saved = tf.train.Checkpoint(model=trained, optimizer=adam).save(f"{folder}/model")
            tf.train.Checkpoint(model=model, optimizer=optimizer).restore(saved)
        hvd.broadcast_variables([*model.variables, *optimizer.variables], root_rank=0)
    for one, other in zip([*model.variables, *optimizer.variables], wanted):
        assert np.array_equal(np.asarray(one), other)


def same_on_all_ranks(variables):
    import horovod.tensorflow as hvd

    return len(set(hvd.allgather_object(b"".join(np.asarray(one).tobytes() for one in variables)))) == 1


@pytest.mark.row("f16")
@in_one_start(2)
def test_objects():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    rank = hvd.rank()
    assert hvd.broadcast_object({"rank": rank}, root_rank=1) == {"rank": 1}
    assert hvd.broadcast_object_fn(root_rank=1)([rank]) == [1]
    assert hvd.allgather_object("x" * (rank + 1)) == ["x", "xx"]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        assert hvd.broadcast_object(rank, session=session) == 0
        assert hvd.allgather_object(rank, session=session) == [0, 1]


@pytest.mark.row("a7")
@in_one_start(2)
def test_global_variables():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    for eager in (lambda: hvd.broadcast_global_variables(0), tf.function(lambda: hvd.broadcast_global_variables(0))):
        with pytest.raises(RuntimeError, match="broadcast_variables"):
            eager()
    for resource in (True, False):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            make = tf.compat.v1.get_variable
            made = [
                make(f"v{i}", initializer=tf.cast([hvd.rank(), 5], dtype), use_resource=resource)
                for i, dtype in enumerate(("float32", "int64", "float16", "bool"))
            ]
            step = tf.compat.v1.train.create_global_step()
            broadcast = hvd.broadcast_global_variables(1)
            session.run(tf.compat.v1.global_variables_initializer())
            if hvd.rank() == 1:
                session.run(step.assign(17))
            session.run(broadcast)
            assert [value.tolist() for value in session.run(made)] == [[1.0, 5.0], [1, 5], [1.0, 5.0], [True, True]]
            assert session.run(step) == 17


@pytest.mark.row("b14")
@in_one_start(2)
def test_sparse_tensors():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    rank = hvd.rank()
    slices = tf.IndexedSlices(tf.fill([rank + 1, 2], 1.0 + rank), tf.range(rank + 1), tf.constant([4, 2]))

    def reduced(**more):
        found = hvd.allreduce(slices, **more)
        assert isinstance(found, tf.IndexedSlices)
        return tf.convert_to_tensor(found).numpy()[:, 0].tolist()

    assert reduced() == [1.5, 1.0, 0.0, 0.0]
    assert reduced(op=hvd.Sum) == [3.0, 2.0, 0.0, 0.0]
    assert reduced(compression=hvd.Compression.fp16) == [1.5, 1.0, 0.0, 0.0]
    with pytest.deprecated_call():
        assert reduced(average=False) == [3.0, 2.0, 0.0, 0.0]
    ones = tf.ones([2])
    first, second, third = hvd.grouped_allreduce([ones * (rank + 1.0), slices, tf.constant(rank)], op=hvd.Sum)
    assert first.numpy().tolist() == [3.0, 3.0]
    assert tf.convert_to_tensor(second).numpy()[:, 0].tolist() == [3.0, 2.0, 0.0, 0.0]
    assert third.numpy() == 1
    assert hvd.grouped_allreduce([]) == []
    for wrong in ({"op": hvd.Max}, {"op": hvd.Adasum}, {"prescale_factor": 2.0}):
        with pytest.raises(NotImplementedError):
            hvd.allreduce(slices, **wrong)
    with pytest.raises(NotImplementedError, match=r"hvd\.Sum"):
        hvd.allreduce(tf.IndexedSlices(tf.ones([1, 2], tf.bool), tf.range(1)))


@in_one_start(2)
def test_averages_of_sparse_integers_are_those_of_dense_ones():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    rank = hvd.rank()
    for dtype in (tf.int32, tf.int64, tf.uint8):
        # Place 0 gets 1 + 1 and 3 + 2, place 2 only a row of rank 0, place 1 nothing.
        rows = tf.constant([[1, 3 - rank]] + [[7, 0]] * (1 - rank), dtype)
        slices = tf.IndexedSlices(rows, tf.constant([0, 2][: 2 - rank]), tf.constant([3, 2]))
        for reduce in (hvd.allreduce, tf.function(hvd.allreduce)):
            found = tf.convert_to_tensor(reduce(slices)).numpy().tolist()
            assert found == hvd.allreduce(tf.convert_to_tensor(slices)).numpy().tolist() == [[1, 2], [0, 0], [3, 0]]


@in_one_start(2)
def test_broadcast_in_place_gives_the_list_of_variables_also_in_a_graph():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    for resource in (True, False):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            make = tf.compat.v1.get_variable
            made = [make(f"v{i}", initializer=[hvd.rank() + 5.0 * i], use_resource=resource) for i in range(2)]
            first, second = hvd.broadcast_(made, root_rank=1)
            session.run(tf.compat.v1.global_variables_initializer())
            assert [one.tolist() for one in session.run([first, second])] == [[1.0], [6.0]]
            assert [one.tolist() for one in session.run(made)] == [[1.0], [6.0]]
            session.run(tf.group(*hvd.broadcast_(made, root_rank=0)))


@pytest.mark.row("f11")
@in_one_start(2)
def test_reducescatter():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    rank = hvd.rank()
    rows = tf.range(3.0)[:, None] * (rank + 1.0)
    wanted = [[0.0], [1.5]] if rank == 0 else [[3.0]]
    assert hvd.reducescatter(rows).numpy().tolist() == wanted
    assert hvd.reducescatter(rows, compression=hvd.Compression.fp16).numpy().tolist() == wanted
    one, other = hvd.grouped_reducescatter([rows, rows], op=hvd.Sum)
    assert one.numpy().tolist() == other.numpy().tolist() == [[2 * value] for (value,) in wanted]
    with pytest.raises(ValueError, match="Average"):
        hvd.reducescatter(rows, op=hvd.Max)


@in_one_start(2)
def test_handles():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    rank = hvd.rank()
    pending = [
        hvd.allreduce_async(tf.fill([3], rank + 1.0), op=hvd.Sum, name=f"handle.{i}")
        for i in (range(8) if rank else reversed(range(8)))
    ]
    gathered = hvd.allgather_async(tf.fill([rank + 1], rank))
    sent = hvd.broadcast_async(tf.constant([rank], tf.bfloat16), root_rank=1)
    for handle in pending:
        result = hvd.synchronize(handle)
        assert isinstance(result, tf.Tensor)
        assert result.numpy().tolist() == [3.0] * 3
    assert hvd.synchronize(gathered).numpy().tolist() == [0, 1, 1]
    assert float(hvd.synchronize(sent)[0]) == 1.0
    with pytest.raises(RuntimeError, match="eager"):
        tf.function(lambda: hvd.allreduce_async(tf.ones([1])))()


@pytest.mark.row("k15")
@in_one_start(2)
def test_batch_normalization():
    batch_normalization()


@pytest.mark.row("k15")
@in_one_start(2, env={"TF_USE_LEGACY_KERAS": "1"})
def test_batch_normalization_with_legacy_keras():
    batch_normalization()


def batch_normalization():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    random = np.random.default_rng(0)
    whole = (random.normal(size=(10, 5, 3)) * [1.0, 10.0, 0.1] + [100.0, 0.0, -3.0]).astype("float32")
    wanted_scale = random.normal(size=whole.shape).astype("float32")
    rows = slice(0, 4) if hvd.rank() == 0 else slice(4, 10)  # batches of different size

    def run(layer, inputs, scale, decorate):
        inputs = tf.constant(inputs)

        @decorate
        def step():
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = layer(inputs, training=True)
                loss = tf.reduce_sum(outputs * scale)
            return outputs, tape.gradient(loss, inputs)

        return [one.numpy() for one in step()]

    for decorate in (tf.function, lambda function: function):
        plain, ours = tf.keras.layers.BatchNormalization(), hvd.SyncBatchNormalization()
        outputs, gradient = run(plain, whole, wanted_scale, decorate)
        own_outputs, own_gradient = run(ours, whole[rows], wanted_scale[rows], decorate)
        assert np.allclose(own_outputs, outputs[rows], atol=2e-3)
        assert np.allclose(own_gradient, gradient[rows], atol=2e-3 * np.abs(gradient).max())
        for one, other in zip(ours.variables, plain.variables):
            assert np.allclose(np.asarray(one), np.asarray(other), rtol=1e-3), one.name
    assert ours.name.startswith("sync_batch_normalization")
    again = type(ours).from_config(ours.get_config())
    assert again.momentum == ours.momentum
    for wrong in (True, None):
        with pytest.raises(ValueError, match="fused"):
            hvd.SyncBatchNormalization(fused=wrong)
