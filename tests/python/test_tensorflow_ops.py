# SPDX-License-Identifier: Apache-2.0
"""Collective operations on TensorFlow's tensors: results, gradients, errors; eagerly, in functions and in v1 graphs."""

import threading

import numpy as np
import pytest
from ranks import in_one_start
from reference import reduce, same_bits, scattered


def modules():
    """TensorFlow and its operations, in ranks only."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")  # tests make many functions; TensorFlow would say so each time
    return tf, hvd


DTYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


def data(dtype, shape, rank):
    """The input of any rank, which every rank can make for itself."""
    import ml_dtypes

    values = np.random.default_rng([rank, *shape]).standard_normal(shape) * 7
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def everyone(dtype, shape, size):
    return [data(dtype, shape, rank) for rank in range(size)]


def in_every_mode(function, *arrays):
    """The results of an operation eagerly, in a tf.function, and in a session."""
    tf, _ = modules()
    yield tf.nest.map_structure(np.asarray, function(*map(tf.constant, arrays)))
    yield tf.nest.map_structure(np.asarray, tf.function(function, autograph=False)(*map(tf.constant, arrays)))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inputs = [tf.compat.v1.placeholder(array.dtype, array.shape) for array in arrays]
        yield session.run(function(*inputs), dict(zip(inputs, arrays)))


@pytest.mark.row("f4", "f10", "f13", "f15", "f17")
@in_one_start(2, 3)
def test_allreduce_of_every_type_and_reduction_in_every_mode():
    _, hvd = modules()
    for dtype in DTYPES:
        for op in (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
            inputs = everyone(dtype, (5, 3), hvd.size())
            expected = reduce(op, inputs, inputs[0].dtype)
            for result in in_every_mode(lambda x, op=op: hvd.allreduce(x, op=op), inputs[hvd.rank()]):
                assert same_bits(result, expected), (dtype, op)


@pytest.mark.row("f10")
@in_one_start(2, 3)
def test_factors_have_all_bits_of_a_double():
    tf, hvd = modules()
    third = 1.0 / 3.0
    result = hvd.allreduce(tf.constant([1.0], tf.float64), op=hvd.Sum, prescale_factor=third, postscale_factor=0.1)
    assert result.numpy()[0] == np.sum([third] * hvd.size()) * 0.1


@pytest.mark.row("f5", "f7", "f13")
@in_one_start(2, 3)
def test_allgather_and_alltoall_with_a_different_number_of_rows_on_every_rank():
    _, hvd = modules()
    rank, size = hvd.rank(), hvd.size()
    for dtype in [*DTYPES, "bool"]:
        inputs = [data(dtype, (2 * other, 3), other) for other in range(size)]  # none on rank 0
        for result in in_every_mode(hvd.allgather, inputs[rank]):
            assert same_bits(result, np.concatenate(inputs)), dtype
        blocks = [data(dtype, (size * (other + 1), 2), other) for other in range(size)]
        parts = [block[rank * (other + 1) : (rank + 1) * (other + 1)] for other, block in enumerate(blocks)]
        splits = np.full(size, rank + 1, np.int32)
        for result, received in in_every_mode(hvd.alltoall, blocks[rank], splits):
            assert same_bits(result, np.concatenate(parts)), dtype
            assert received.tolist() == [other + 1 for other in range(size)]
    equal = hvd.alltoall(np.arange(size) + 10 * rank)
    assert equal.numpy().tolist() == [10 * other + rank for other in range(size)]


@pytest.mark.row("f6", "f11")
@in_one_start(2, 3)
def test_broadcast_and_reducescatter():
    _, hvd = modules()
    rank, size = hvd.rank(), hvd.size()
    for dtype in [*DTYPES, "bool"]:
        inputs = everyone(dtype, (4,), size)
        for result in in_every_mode(lambda x: hvd.broadcast(x, root_rank=size - 1), inputs[rank]):
            assert same_bits(result, inputs[-1]), dtype
    for dtype in DTYPES:
        inputs = everyone(dtype, (size + 1, 2), size)  # rank 0 gets one row more
        expected = scattered(reduce(hvd.Sum, inputs, inputs[0].dtype), size, rank)
        for result in in_every_mode(lambda x: hvd.reducescatter(x, op=hvd.Sum), inputs[rank]):
            assert same_bits(result, expected), dtype


@pytest.mark.row("f11")
@in_one_start(2, 3)
def test_groups_of_mixed_types_in_every_mode():
    tf, hvd = modules()
    rank, size = hvd.rank(), hvd.size()
    floats, numbers = everyone("float32", (3, 2), size), everyone("int64", (4,), size)
    own, total = (floats[rank], numbers[rank]), reduce(hvd.Sum, floats, floats[0].dtype)
    for result in in_every_mode(lambda *group: hvd.grouped_allreduce(list(group), op=hvd.Sum), *own):
        assert same_bits(result[0], total)
        assert same_bits(result[1], reduce(hvd.Sum, numbers, numbers[0].dtype))
    for result in in_every_mode(lambda *group: hvd.grouped_allgather(list(group)), *own):
        assert same_bits(result[0], np.concatenate(floats))
        assert same_bits(result[1], np.concatenate(numbers))
    for result in in_every_mode(lambda *group: hvd.grouped_reducescatter(list(group), op=hvd.Sum), *own):
        assert same_bits(result[0], scattered(total, size, rank))
    assert hvd.grouped_allreduce([]) == []
    with pytest.raises(TypeError, match="give a list of tensors"):
        hvd.grouped_allreduce(tf.zeros([2]))


@pytest.mark.row("f12", "f8")
@in_one_start(2, 3)
def test_gradients_of_all_operations_in_functions_and_eagerly():
    tf, hvd = modules()
    rank, size = hvd.rank(), hvd.size()

    def gradient(function, shape):
        x = tf.Variable(tf.ones(shape) * (rank + 1.0))

        def compute():
            with tf.GradientTape() as tape:
                y = function(x)
                loss = tf.reduce_sum(y * (rank + 1.0))
            return tape.gradient(loss, x)

        eager = compute().numpy()
        assert np.array_equal(eager, tf.function(compute, autograph=False)().numpy())
        return eager

    total, mean = size * (size + 1) / 2, (size + 1) / 2
    assert gradient(lambda x: hvd.allreduce(x, op=hvd.Sum), [2]).tolist() == [total] * 2
    assert np.allclose(gradient(lambda x: hvd.allreduce(x, op=hvd.Average), [2]), [mean] * 2)
    assert np.allclose(gradient(lambda x: hvd.grouped_allreduce([x, x + 1], op=hvd.Sum)[0], [2]), [total] * 2)
    assert np.allclose(gradient(hvd.allgather, [rank + 1, 2]), np.full([rank + 1, 2], mean))
    assert np.allclose(gradient(lambda x: hvd.grouped_allgather([x])[0], [rank + 1]), np.full([rank + 1], mean))
    assert np.allclose(gradient(lambda x: hvd.broadcast(x, 1), [2]), [mean if rank == 1 else 0.0] * 2)
    assert gradient(lambda x: hvd.alltoall(x), [size]).tolist() == [other + 1.0 for other in range(size)]
    # A row that is sent to nobody.
    splits = tf.ones([size], tf.int32)
    with_rest = gradient(lambda x: hvd.alltoall(x, splits)[0], [size + 1]).tolist()
    assert with_rest == [*(other + 1.0 for other in range(size)), 0.0]
    scattered = gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum), [size]).tolist()
    assert scattered == [size * (other + 1.0) for other in range(size)]
    with pytest.raises(Exception, match="have no gradient"):
        gradient(lambda x: hvd.allreduce(x, op=hvd.Max), [2])


@pytest.mark.row("f14", "k18")
@in_one_start(2, 3)
def test_disagreements_are_errors_on_every_rank_and_work_goes_on():
    tf, hvd = modules()
    rank = hvd.rank()
    wrong = {
        "shapes": lambda: hvd.allreduce(tf.zeros([2 + rank]), name="shapes"),
        "types": lambda: hvd.allreduce(tf.zeros([2], tf.float32 if rank else tf.float64), name="types"),
        "root": lambda: hvd.broadcast(tf.zeros([2]), root_rank=min(rank, 1), name="root"),
        "reduction": lambda: hvd.allreduce(tf.zeros([2]), op=hvd.Sum if rank else hvd.Max, name="op"),
        "operations": lambda: hvd.allgather(tf.zeros([2]), name="x") if rank else hvd.broadcast(tf.zeros([2]), 0, "x"),
    }
    for text, call in wrong.items():
        for run in (call, tf.function(call, autograph=False)):
            with pytest.raises(tf.errors.FailedPreconditionError, match="(?i)mismatched.*" + text[:4]):
                run()
        assert float(hvd.allreduce(1.0, op=hvd.Sum, name="after")) == hvd.size()


@pytest.mark.row("f14")
@in_one_start(2)
def test_wrong_arguments_raise_before_anything_is_sent():
    tf, hvd = modules()
    x = tf.zeros([2])
    for kind, text, call in [
        (ValueError, "op=9", lambda: hvd.allreduce(x, op=9)),
        (ValueError, "exclusive", lambda: hvd.allreduce(x, average=True, op=hvd.Sum)),
        (TypeError, "root_rank='a'", lambda: hvd.broadcast(x, "a")),
        (ValueError, "root_rank=-1", lambda: hvd.broadcast(x, -1)),
        (TypeError, "prescale_factor", lambda: hvd.allreduce(x, prescale_factor="2")),
        (TypeError, "process_set=3", lambda: hvd.allreduce(x, process_set=3)),
        (ValueError, "not registered", lambda: hvd.allreduce(x, process_set=hvd.ProcessSet([0]))),
        (TypeError, "name=3", lambda: hvd.allreduce(x, name=3)),
        (ValueError, "instead of int32", lambda: hvd.alltoall(x, splits=[1.0, 1.0])),
        (tf.errors.InvalidArgumentError, "scalar", lambda: hvd.reducescatter(tf.constant(1.0))),
        (tf.errors.InvalidArgumentError, "root rank", lambda: hvd.broadcast(x, 7)),
        (tf.errors.InvalidArgumentError, "split", lambda: hvd.alltoall(x, splits=[1, 1, 1])),
        (Exception, "complex", lambda: hvd.allreduce(tf.zeros([2], tf.complex64))),
    ]:
        with pytest.raises(kind, match=text):
            call()
    assert float(hvd.allreduce(1.0, op=hvd.Sum)) == 2.0


@pytest.mark.row("f15", "i5")
@in_one_start(2)
def test_five_hundred_operations_are_in_flight_with_one_thread():
    tf, hvd = modules()
    with tf.Graph().as_default():
        inputs = [tf.compat.v1.placeholder(tf.float32, [3]) for _ in range(500)]
        # Ranks build and so submit them in opposite orders: a thread that waited would wait for ever.
        order = range(500) if hvd.rank() == 0 else reversed(range(500))
        sums = {i: hvd.allreduce(inputs[i], op=hvd.Sum, name=f"t{i}") for i in order}
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
        with tf.compat.v1.Session(config=config) as session:
            for step in range(3):
                feed = {x: np.full(3, i + step, np.float32) for i, x in enumerate(inputs)}
                results = session.run([sums[i] for i in range(500)], feed)
                assert all(result.tolist() == [2.0 * (i + step)] * 3 for i, result in enumerate(results))


@pytest.mark.row("f15")
@in_one_start(2)
def test_a_name_that_is_given_twice_in_a_graph_means_two_operations():
    tf, hvd = modules()

    def both():
        return [hvd.allreduce(tf.constant(value), op=hvd.Sum, name="a") for value in (1.0, 10.0)]

    for _ in range(20):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            assert session.run(both()) == [2.0, 20.0]
    step = tf.function(both, autograph=False)
    for _ in range(50):
        assert [float(value) for value in step()] == [2.0, 20.0]
    assert float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="")) == 2.0


@pytest.mark.row("f15")
@in_one_start(2)
def test_collectives_fed_by_constants_run_at_every_step_and_unused_ones_too():
    tf, hvd = modules()

    @tf.function(autograph=False)
    def step():
        hvd.allreduce(tf.constant([2.0]), op=hvd.Sum, name="unused")
        return hvd.allreduce(tf.constant([1.0]), op=hvd.Sum, name="constant")

    step()

    def completed():
        return hvd.counters()["operations"]["allreduce"]["completed"]

    before = completed()
    for _ in range(5):
        assert step().numpy().tolist() == [2.0]
    assert completed() - before == 10


@pytest.mark.row("f15")
@in_one_start(2)
def test_operations_of_a_function_overlap():
    tf, hvd = modules()

    @tf.function(autograph=False)
    def step(x):
        return tf.add_n([hvd.allreduce(x * i, op=hvd.Sum, name=f"overlap{i}") for i in range(10)])

    x = tf.constant([1.0])
    step(x)  # the names are known now
    if hvd.rank() == 0:
        hvd.barrier()
        # The other rank runs nothing but its first operation until all ten of this one were seen to be in flight.
        thread = threading.Thread(target=lambda: step(x))
        thread.start()
        hvd.broadcast_object("go", root_rank=1, name="gate")
        thread.join(60)
        assert not thread.is_alive()
    else:
        import time

        hvd.barrier()
        time.sleep(0.3)
        hvd.broadcast_object("go", root_rank=1, name="gate")
        assert step(x).numpy().tolist() == [90.0]


@pytest.mark.row("f16")
@in_one_start(2)
def test_threads_may_run_eager_operations_at_the_same_time():
    tf, hvd = modules()
    results = {}

    def work(number):
        for step in range(20):
            results[number, step] = float(hvd.allreduce(tf.constant(1.0 * number), op=hvd.Sum, name=f"thread{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert results == {(number, step): 2.0 * number for number in range(8) for step in range(20)}


@pytest.mark.row("k10")
@in_one_start(2, 3)
def test_join_gives_zeros_and_the_last_rank():
    tf, hvd = modules()
    for step in range(hvd.rank() + 1):
        present = hvd.size() - step
        assert float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name=f"step{step}")) == present
    assert int(hvd.join()) == hvd.size() - 1


@pytest.mark.row("f2", "f3")
@in_one_start(2)
def test_ranks_and_sizes_as_operations():
    tf, hvd = modules()
    ask = tf.function(
        lambda: (hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op(), hvd.process_set_included_op())
    )
    assert [int(value) for value in ask()] == [hvd.rank(), 2, hvd.local_rank(), 2, 1]
    assert [int(value) for value in (hvd.rank_op(), hvd.size_op())] == [hvd.rank(), 2]
    with pytest.raises(tf.errors.InvalidArgumentError):
        hvd.size_op(process_set_id=99)


@pytest.mark.row("b18")
@in_one_start(2)
def test_names_do_not_depend_on_what_a_rank_did_alone():
    tf, hvd = modules()
    if hvd.rank() == 0:
        for _ in range(3):  # counters of TensorFlow and Keras that the other rank does not have
            tf.function(lambda x: tf.cond(x > 0, lambda: x, lambda: -x))(tf.constant(1.0))
    weights = tf.Variable([1.0, 2.0])

    @tf.function(autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights * x)
        return hvd.DistributedGradientTape(tape).gradient(loss, weights)

    for length in (1, 2):  # two traces
        assert step(tf.ones([length, 2]) * (hvd.rank() + 1.0)).numpy().tolist() == [1.5 * length] * 2
