# SPDX-License-Identifier: Apache-2.0
"""Wrapped Keras optimizers: loss scaling, XLA, local variables, process sets, and state that is there already."""

import copy
import warnings

import numpy as np
import pytest
from keras_training import (
    close,
    data,
    fit,
    is_keras3,
    modules,
    network,
    same_bits_on_all_ranks,
    share,
    shared,
    whole,
    with_each_keras,
)


def loss_scaling(keras, optimizer):
    return keras.mixed_precision.LossScaleOptimizer(optimizer)


def scale_of(optimizer):
    return float(np.asarray(optimizer.dynamic_scale if hasattr(optimizer, "dynamic_scale") else optimizer.loss_scale))


@with_each_keras("c17")
def test_an_overflow_on_one_rank_only():
    keras, hvd = modules()
    features, wanted = share(data(), hvd.rank(), hvd.size())
    rows = 12 // hvd.size()
    if hvd.rank() == 1:
        features = features.copy()
        features[2 * rows : 3 * rows] = np.inf  # in one of its batches
    keras.backend.set_floatx("float32")
    keras.mixed_precision.set_global_policy("mixed_float16")
    makers = {
        "compile scales": lambda make: hvd.DistributedOptimizer(make(0.1)),
        "the user scales outside": lambda make: loss_scaling(keras, hvd.DistributedOptimizer(make(0.1))),
        "the user scales inside": lambda make: hvd.DistributedOptimizer(loss_scaling(keras, make(0.1))),
        "in several passes": lambda make: hvd.DistributedOptimizer(make(0.1), backward_passes_per_step=2),
    }
    families = [keras.optimizers.SGD] + ([] if is_keras3(keras) else [keras.optimizers.legacy.SGD])
    try:
        for name, wrap in makers.items():
            for make in families:
                model = network(keras)
                # A step is traced where that matters: in eager ones, too, ranks must decide alike.
                options = {"size": hvd.size(), "epochs": 1, "run_eagerly": name.startswith("the user")}
                weights = fit(keras, model, wrap(make), (features, wanted), **options)
                assert np.isfinite(np.concatenate([one.ravel() for one in weights])).all(), (name, make)
                assert same_bits_on_all_ranks(weights), (name, make)
                assert scale_of(model.optimizer) == 2.0**14, (name, make)
                assert "LossScaleOptimizer" in type(model.optimizer).__name__
    finally:
        keras.mixed_precision.set_global_policy("float64")


@with_each_keras("c20")
def test_collectives_stay_out_of_xla():
    keras, hvd = modules()
    import horovod._keras.xla as xla
    import tensorflow as tf

    xla._warned = False
    expected = whole(keras, keras.optimizers.SGD(0.1))
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for callbacks in ([], [callback]):
            wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
            assert close(shared(keras, hvd, wrapped, jit_compile=True, callbacks=callbacks), expected)
        if is_keras3(keras):  # its "auto" means True where there is a GPU
            trainer = next(one for one in keras.Model.__mro__ if "_resolve_auto_jit_compile" in vars(one))
            plain, trainer._resolve_auto_jit_compile = trainer._resolve_auto_jit_compile, lambda self: True
            try:
                assert close(shared(keras, hvd, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))), expected)
            finally:
                trainer._resolve_auto_jit_compile = plain
    ours = [one for one in caught if "jit_compile" in str(one.message)]
    assert len(ours) == (hvd.rank() == 0)
    model = network(keras)
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=True)
    assert model.jit_compile  # plain optimizers keep it

    variable = tf.Variable(1.0)
    wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))

    @tf.function(jit_compile=True, autograph=False)
    def compiled():
        wrapped.apply_gradients([(tf.constant(1.0), variable)])

    with pytest.raises(RuntimeError, match="cannot run inside"):
        compiled()


@with_each_keras("b4")
def test_a_tape_and_an_optimizer_that_both_reduce():
    keras, hvd = modules()
    import horovod.tensorflow
    import tensorflow as tf
    from horovod.tensorflow import twice

    variable = tf.Variable(np.zeros(2))

    def step(optimizer, wrap):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable) * (hvd.rank() + 1.0)
        optimizer.apply_gradients([(wrap(tape).gradient(loss, variable), variable)])

    def warnings_of(optimizer, wrap, run):
        twice._State.warned = False
        optimizer.build([variable]) if hasattr(optimizer, "build") else None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                run(lambda: step(optimizer, wrap))
        return len([one for one in caught if "reduced twice" in str(one.message)])

    distributed, sgd = horovod.tensorflow.DistributedGradientTape, keras.optimizers.SGD
    for run in (lambda function: function(), lambda function: tf.function(function, autograph=False)()):
        wrapped = hvd.DistributedOptimizer(sgd(0.1))
        assert warnings_of(wrapped, lambda tape: tape, run) == 0
        assert warnings_of(sgd(0.1), distributed, run) == 0
        assert warnings_of(wrapped, distributed, run) == (hvd.rank() == 0)
        scaled = loss_scaling(keras, hvd.DistributedOptimizer(sgd(0.1), backward_passes_per_step=2))
        assert warnings_of(scaled, distributed, run) == (hvd.rank() == 0)
        if not is_keras3(keras):
            legacy = hvd.DistributedOptimizer(keras.optimizers.legacy.SGD(0.1))
            assert warnings_of(legacy, distributed, run) == (hvd.rank() == 0)


@with_each_keras("g2", "g6", "g9")
def test_local_variables_are_not_reduced():
    keras, hvd = modules()
    import tensorflow as tf

    makers = [keras.optimizers.SGD] + ([] if is_keras3(keras) else [keras.optimizers.legacy.SGD])
    for make in makers:
        for scaled in (True, False):
            own = tf.Variable(np.zeros(2 + hvd.rank()))  # of another shape on every rank
            common = tf.Variable(np.zeros(3))
            optimizer = hvd.DistributedOptimizer(make(1.0), scale_local_gradients=scaled)
            optimizer.register_local_var(own)
            gradients = [tf.ones_like(own) * 4.0, tf.ones_like(common) * (hvd.rank() + 1.0)]
            optimizer.apply_gradients(zip(gradients, [own, common]))
            assert np.allclose(own, -4.0 / hvd.size() if scaled else -4.0)
            assert np.allclose(common, -1.5)


@with_each_keras("g1", "g3", "g7")
def test_layers_that_are_not_built_yet_can_be_local():
    keras, hvd = modules()
    import horovod.keras

    for function in (hvd.PartialDistributedOptimizer, horovod.keras.PartialDistributedOptimizer):
        keras.utils.set_random_seed(1)
        own = keras.layers.Dense(3, kernel_initializer="ones")
        model = keras.Sequential([keras.layers.Dense(4), own])
        optimizer = function(keras.optimizers.SGD(0.1), local_layers=own)
        fit(keras, model, optimizer, share(data(), hvd.rank(), hvd.size()), size=hvd.size())
        assert same_bits_on_all_ranks(model.layers[0].get_weights())
        assert not same_bits_on_all_ranks(own.get_weights())
        with pytest.raises(ValueError, match="is no layer"):
            function(keras.optimizers.SGD(0.1), local_layers=["dense"])


@with_each_keras("k9")
def test_a_process_set_without_this_rank_leaves_gradients_alone():
    keras, hvd = modules()
    hvd.shutdown()
    first = hvd.ProcessSet([0])
    hvd.init(process_sets=[first])
    mine = share(data(), hvd.rank(), hvd.size())
    from horovod import keras as standalone

    for module in (hvd, standalone):
        optimizer = module.DistributedOptimizer(keras.optimizers.SGD(0.1), process_set=first)
        assert optimizer._hvd.settings.process_set is first
    ours = fit(keras, network(keras), optimizer, mine, size=hvd.size())
    assert close(ours, fit(keras, network(keras), keras.optimizers.SGD(0.1), mine, size=hvd.size()), 0.0)


@with_each_keras("c1")
def test_a_copy_exchanges_gradients_too_or_is_refused():
    keras, hvd = modules()
    import tensorflow as tf

    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    if not is_keras3(keras):
        with pytest.raises(RuntimeError):  # as of a plain one
            copy.deepcopy(optimizer)
        copied = copy.deepcopy(hvd.DistributedOptimizer(keras.optimizers.legacy.SGD(1.0)))
        variable = tf.Variable(0.0)
        copied.apply_gradients([(tf.constant(float(hvd.rank())), variable)])
        assert float(variable.numpy()) == -(hvd.size() - 1) / 2
        return
    own = keras.layers.Dense(1)
    copied = copy.deepcopy(hvd.PartialDistributedOptimizer(keras.optimizers.SGD(1.0), local_layers=own))
    assert copied._hvd.settings.local_layers is own
    copied = copy.deepcopy(optimizer)
    variable = keras.Variable(0.0)
    copied.build([variable])
    copied.apply_gradients([(tf.constant(float(hvd.rank())), variable)])
    assert float(variable.numpy()) == -(hvd.size() - 1) / 2


@with_each_keras("b6")
def test_state_goes_into_the_wrapper_and_variables_may_be_called():
    keras, hvd = modules()
    makers = [lambda: keras.optimizers.Adam(0.01)]
    if not is_keras3(keras):
        makers.append(lambda: keras.optimizers.legacy.Adam(0.01))
    batch = share(data(), hvd.rank(), hvd.size())
    for make in makers:
        one = network(keras)
        fit(keras, one, make(), data(), run_eagerly=True)
        fit(keras, one, None, data())
        model = network(keras)
        fit(keras, model, make(), data(), run_eagerly=True)
        model.optimizer = hvd.DistributedOptimizer(model.optimizer)
        assert int(np.asarray(model.optimizer.iterations)) == 8
        model.train_function = None
        assert close(fit(keras, model, None, batch, size=hvd.size()), one.get_weights())
        variables = model.optimizer.variables
        assert [id(variable) for variable in variables] == [id(variable) for variable in variables()]
        assert len(variables) == len(list(one.optimizer.variables if is_keras3(keras) else one.optimizer.variables()))
        hvd_again = hvd.DistributedOptimizer(model.optimizer)  # not reduced twice
        assert type(hvd_again).__mro__.count(type(one.optimizer)) == 1


@with_each_keras("c17")
def test_gradients_in_steps():
    keras, hvd = modules()
    import tensorflow as tf

    if is_keras3(keras):
        return  # its training steps were never written like this
    for make in (keras.optimizers.SGD, keras.optimizers.legacy.SGD):
        for aggregated in (False, True):
            weights = tf.Variable([1.0, 2.0], dtype=tf.float64)
            optimizer = hvd.DistributedOptimizer(make(0.5))
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weights) * (hvd.rank() + 1.0)
            pairs = optimizer._compute_gradients(loss, [weights], tape=tape)
            assert pairs[0][0].numpy().tolist() == [hvd.rank() + 1.0] * 2
            if aggregated:
                pairs = optimizer._aggregate_gradients(pairs)
                assert pairs[0][0].numpy().tolist() == [1.5] * 2
                optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)
            else:
                optimizer.apply_gradients(pairs)
            assert weights.numpy().tolist() == [0.25, 1.25]


@with_each_keras("c17")
def test_what_a_configuration_does_not_hold_is_kept():
    keras, hvd = modules()

    class Halving(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            import tensorflow as tf

            return 0.1 * 0.5 ** tf.cast(step, "float64")

    weights = shared(keras, hvd, hvd.DistributedOptimizer(keras.optimizers.SGD(Halving())))
    assert close(weights, whole(keras, keras.optimizers.SGD(Halving())))

    def decaying(wrap):
        optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.5)
        optimizer.exclude_from_weight_decay(var_names=["bias"])
        return wrap(optimizer)

    assert close(shared(keras, hvd, decaying(hvd.DistributedOptimizer)), whole(keras, decaying(lambda plain: plain)))


@with_each_keras("b18")
def test_ranks_agree_whatever_they_have_built_before():
    keras, hvd = modules()
    import tensorflow as tf

    for _ in range(hvd.rank() * 2):  # numbers of layers and of traces differ from here on
        network(keras)(tf.zeros([1, 4]))
        tf.function(lambda x: x + 1)(tf.constant(1))
    first, second = (hvd.DistributedOptimizer(keras.optimizers.SGD(1.0)) for _ in range(2))
    one, other = tf.Variable(np.zeros(2)), tf.Variable(np.zeros(2))
    optimizers = [first, second]

    @tf.function
    def step(rank):
        optimizers[0].apply_gradients([(tf.ones([2], tf.float64) * rank, one)])
        optimizers[1].apply_gradients([(tf.ones([2], tf.float64) * rank * 10.0, other)])

    for optimizer, variable in zip(optimizers, (one, other)):
        optimizer.build([variable])
    step(tf.constant(hvd.rank() + 1.0, tf.float64))
    assert np.allclose(one, -1.5)
    assert np.allclose(other, -15.0)
