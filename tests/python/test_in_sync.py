# SPDX-License-Identifier: Apache-2.0
"""check_in_sync, HOROVOD_CHECK_SYNC, and the checks that tapes and wrapped optimizers make at the start."""

from __future__ import annotations

import pytest
from ranks import in_one_start


@in_one_start(2, 3)
def test_check_in_sync_names_the_first_variable_that_differs_and_the_ranks():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    same, other = tf.Variable([[1.0, 2.0]], name="same"), tf.Variable([1.0, 2.0, 3.0], name="other")
    hvd.check_in_sync([same, other, tf.Variable("text"), tf.Variable(True), tf.Variable([], dtype=tf.bfloat16)])
    if hvd.rank() == 1:
        other.assign([1.0, 5.0, 3.0])
    with pytest.raises(hvd.HorovodSyncError) as caught:
        hvd.check_in_sync([same, other])
    assert "variable 'other:0' (2 of 2) differs between the ranks" in str(caught.value)
    assert "one value is 2 on rank 0 and 5 on rank 1; rank 1 differs from rank 0" in str(caught.value)
    with pytest.raises(hvd.HorovodSyncError, match=r"rank 0 has 1 variables, and rank 1 has 2"):
        hvd.check_in_sync([same] if hvd.rank() == 0 else [same, same])
    with pytest.raises(hvd.HorovodSyncError, match=r"float32 \[1, 2\] on rank 0 and float32 \[3\] on rank 1"):
        hvd.check_in_sync([other if hvd.rank() == 1 else same])
    with pytest.raises(TypeError, match="give a model or a list of variables"):
        hvd.check_in_sync(same)


@in_one_start(4)
def test_check_in_sync_among_the_members_of_a_process_set_only():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.shutdown()
    even = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[even])
    variable = tf.Variable(float(hvd.rank() % 2), name="parity")
    if hvd.rank() % 2 == 0:
        hvd.check_in_sync([variable], process_set=even)
    with pytest.raises(hvd.HorovodSyncError, match="ranks 1, 3 differ from rank 0"):
        hvd.check_in_sync([variable])


def steps_until_error(step, n=12):
    """Return the number of the step that raised HorovodSyncError, and the error; (0, None) if none did."""
    import tensorflow as tf
    from horovod.common.exceptions import HorovodSyncError

    for number in range(1, n + 1):
        try:
            step()
        except (HorovodSyncError, tf.errors.OpError) as error:
            return number, error
    return 0, None


@in_one_start(2)
def test_a_forgotten_broadcast_is_found_by_tapes_and_optimizers_eagerly_and_in_graphs():
    import horovod.tensorflow as hvd
    import horovod.tensorflow.keras as hvd_keras
    import tensorflow as tf

    def by_tape(broadcast_after):
        kernel = tf.Variable(tf.ones([3]) * (hvd.rank() + 1.0), name="kernel")
        done = []

        def step():
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = tf.reduce_sum(kernel * kernel)
            kernel.assign_sub(0.1 * tape.gradient(loss, kernel))

        return kernel, step, done, broadcast_after

    def by_optimizer(broadcast_after):
        kernel = tf.Variable(tf.ones([3]) * (hvd.rank() + 1.0), name="kernel")
        optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
        optimizer.build([kernel])

        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(kernel * kernel)
            optimizer.apply_gradients([(tape.gradient(loss, kernel), kernel)])

        return kernel, step, [], broadcast_after

    for make in (by_tape, by_optimizer):
        for graph in (False, True):
            for broadcast_after, found in ((0, 8), (1, 0), (5, 0)):
                kernel, step, _, _ = make(broadcast_after)
                run = tf.function(step) if graph else step
                taken = []

                def whole(run=run, taken=taken, kernel=kernel, after=broadcast_after):
                    run()
                    taken.append(1)
                    if len(taken) == after:
                        hvd.broadcast_variables([kernel], root_rank=0)

                number, error = steps_until_error(whole)
                assert number == found, (make.__name__, graph, broadcast_after, number, error)
                if found:
                    assert "HorovodSyncError" in type(error).__name__ + str(error)
                    assert "kernel" in str(error)
                    assert "HOROVOD_CHECK_SYNC=0" in str(error)


@in_one_start(2)
def test_rounding_and_local_variables_end_nothing():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    rounded = tf.Variable(tf.ones([3]) * (1.0 + 1e-6 * hvd.rank()))
    local = tf.Variable([float(hvd.rank())])

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(rounded) + tf.reduce_sum(local)
        tape = hvd.DistributedGradientTape(tape)
        tape.register_local_source(local)
        tape.gradient(loss, [local, rounded])

    assert steps_until_error(step) == (0, None)
    assert steps_until_error(tf.function(step)) == (0, None)


@in_one_start(2, env={"HOROVOD_CHECK_SYNC": "5"})
def test_every_n_steps_and_after_another_init():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    for wrap in (lambda step: step, tf.function):
        kernel = tf.Variable([1.0, 2.0], name="kernel")

        def step(kernel=kernel):
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = tf.reduce_sum(kernel)
            tape.gradient(loss, kernel)

        run = wrap(step)
        for _ in range(3):
            run()
        kernel.assign([1.0, 2.0 + hvd.rank()])
        number, error = steps_until_error(run)
        assert number == 2, (number, error)
        hvd.shutdown()
        hvd.init()
        assert steps_until_error(run)[0] == 2


@in_one_start(2, env={"HOROVOD_CHECK_SYNC": "1"})
def test_what_changes_a_variable_beside_the_gradients_waits_for_the_check():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    kernels = [tf.Variable(tf.ones([1000]), name=f"kernel{i}") for i in range(20)]

    @tf.function
    def step():
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.add_n([tf.reduce_sum(kernel) for kernel in kernels])
        gradients = tape.gradient(loss, kernels)
        for kernel in kernels:
            kernel.assign(kernel * 0.5)
        return gradients[0]

    for _ in range(30):
        step()
    assert all((kernel.numpy() == 0.5**30).all() for kernel in kernels)


@in_one_start(2, env={"HOROVOD_CHECK_SYNC": "0"})
def test_no_check_if_it_is_switched_off():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    kernel = tf.Variable([float(hvd.rank())])

    def step():
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(kernel)
        tape.gradient(loss, kernel)

    assert steps_until_error(step) == (0, None)


@in_one_start(2)
def test_a_function_that_reduces_from_its_second_trace_on():
    """As elastic programs do: the first step makes the optimizer's variables, on each rank alone."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    kernel, optimizers = tf.Variable([1.0]), []

    @tf.function
    def step(reduces):
        if not optimizers:
            optimizers.append(tf.keras.optimizers.SGD(0.5, momentum=0.5))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(kernel) * (1.0 + hvd.rank() * reduces)
        tape = hvd.DistributedGradientTape(tape) if reduces else tape
        optimizers[0].apply_gradients([(tape.gradient(loss, kernel), kernel)])

    step(False)
    step(True)
    # Gradients of 1 and 1.5: the momentum is half of the first.
    assert kernel.numpy().tolist() == [1.0 - 0.5 - 0.25 - 0.75]


@in_one_start(2)
def test_a_function_that_one_rank_traces_again_counts_on():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    kernel = tf.Variable([[1.0], [2.0]])

    @tf.function
    def step(batch):
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(batch @ kernel)
        tape.gradient(loss, kernel)

    for number in range(10):
        step(tf.ones([3 + (number % 3) * hvd.rank(), 2]))


@in_one_start(2)
def test_model_fit_ends_with_the_name_of_the_variable():
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf

    tf.keras.utils.set_random_seed(hvd.rank())
    model = tf.keras.Sequential([tf.keras.Input([4]), tf.keras.layers.Dense(3, name="head")])
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), "mse")
    data = tf.ones([40, 4]), tf.ones([40, 3])
    with pytest.raises(Exception, match="head/kernel"):
        model.fit(*data, batch_size=4, verbose=0)
    hvd.check_in_sync([])
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model = tf.keras.Sequential([tf.keras.Input([4]), tf.keras.layers.Dense(3)])
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), "mse")
    model.fit(*data, batch_size=4, verbose=0, callbacks=[callback])
    hvd.check_in_sync(model)
