# SPDX-License-Identifier: Apache-2.0
"""What Keras users rely on besides training: names, signatures, files, values, and errors for wrong arguments."""

import gc
import inspect
import os
import subprocess
import sys
import tempfile
import weakref

import numpy as np
import pytest
from keras_training import close, data, fit, is_keras3, modules, network, with_each_keras


@with_each_keras("c3", "c19", ranks=(1,))
def test_exports_and_signatures():
    import horovod
    import horovod.tensorflow

    found = horovod.tensorflow.keras  # without being imported by name
    assert found.callbacks.BroadcastGlobalVariablesCallback
    import horovod.keras

    both = [
        "init shutdown is_initialized start_timeline stop_timeline size local_size cross_size rank local_rank",
        "mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built cuda_built",
        "cross_rank rocm_built global_process_set Average Sum Compression callbacks DistributedOptimizer load_model",
        "broadcast_global_variables allreduce allgather broadcast reducescatter PartialDistributedOptimizer",
    ]
    for name in " ".join(both).split():
        assert hasattr(found, name), name
        assert hasattr(horovod.keras, name), name
    wanted = "ProcessSet add_process_set remove_process_set Adasum Min Max Product counters counters_text barrier join"
    for name in f"{wanted} allgather_object broadcast_object is_homogeneous HorovodInternalError".split():
        assert name in found.__all__, name
        assert name in horovod.keras.__all__, name
        assert hasattr(horovod.keras, name), name
    assert horovod.keras.Adasum == 2

    def parameters(function):
        return [
            name if one.default is inspect.Parameter.empty else f"{name}={one.default}"
            for name, one in inspect.signature(function).parameters.items()
        ]

    assert parameters(found.DistributedOptimizer)[:3] == ["optimizer", "name=None", "device_dense="]
    assert list(inspect.signature(found.DistributedOptimizer).parameters) == [
        "optimizer",
        "name",
        "device_dense",
        "device_sparse",
        "compression",
        "sparse_as_dense",
        "gradient_predivide_factor",
        "op",
        "backward_passes_per_step",
        "average_aggregated_gradients",
        "num_groups",
        "groups",
        "process_set",
        "scale_local_gradients",
    ]
    assert list(inspect.signature(horovod.keras.DistributedOptimizer).parameters) == [
        "optimizer",
        "name",
        "device_dense",
        "device_sparse",
        "compression",
        "sparse_as_dense",
        "gradient_predivide_factor",
        "op",
        "num_groups",
        "groups",
        "process_set",
    ]
    assert parameters(found.allreduce)[2] == "average=None"
    assert parameters(horovod.keras.allreduce)[2] == "average=True"
    callbacks = found.callbacks
    assert parameters(callbacks.BroadcastGlobalVariablesCallback) == ["root_rank", "device=", "local_variables=None"]
    assert parameters(callbacks.LearningRateScheduleCallback) == [
        "initial_lr",
        "multiplier",
        "start_epoch=0",
        "end_epoch=None",
        "staircase=True",
        "momentum_correction=True",
        "steps_per_epoch=None",
    ]
    assert parameters(callbacks.LearningRateWarmupCallback) == [
        "initial_lr",
        "warmup_epochs=5",
        "momentum_correction=True",
        "steps_per_epoch=None",
        "verbose=0",
    ]
    assert "save_weights_only=False" in parameters(callbacks.BestModelCheckpoint)
    assert "save_weights_only=False" not in parameters(horovod.keras.callbacks.BestModelCheckpoint)


def trained(keras, wrap, make):
    model = network(keras)
    fit(keras, model, wrap(make()), data(), run_eagerly=True)  # faster than to trace a step for a few of them
    return model


@with_each_keras("c9", "c18", ranks=(1,))
def test_files_load_with_and_without_us():
    keras, hvd = modules()
    makers = {"Adam": lambda: keras.optimizers.Adam(0.01)}
    if not is_keras3(keras):
        makers["legacy"] = lambda: keras.optimizers.legacy.Adam(0.01)
    endings = [".keras", ".h5"] + ([] if is_keras3(keras) else [""])  # the last is a SavedModel
    for name, make in makers.items():
        plain = trained(keras, lambda optimizer: optimizer, make)
        wrapped = trained(keras, hvd.DistributedOptimizer, make)
        for ending in endings:
            with tempfile.TemporaryDirectory() as folder:
                wrapped.save(os.path.join(folder, f"ours{ending}"))
                plain.save(os.path.join(folder, f"theirs{ending}"))
                expected = keras.models.load_model(os.path.join(folder, f"theirs{ending}"))
                without = keras.models.load_model(os.path.join(folder, f"ours{ending}"))
                again = hvd.load_model(os.path.join(folder, f"ours{ending}"))
            assert not hasattr(without.optimizer, "register_local_var")
            assert hasattr(again.optimizer, "register_local_var"), (name, ending)
            if ending == ".h5" and is_keras3(keras):  # which cannot train what it loaded from HDF5
                expected, found = plain, [again]
            else:
                found = [without, again]
            # Keras 2 forgets the state of some optimizers in some files, and we with it.
            steps = int(np.asarray(expected.optimizer.iterations))
            fit(keras, expected, None, data())
            for model in found:
                assert type(model.optimizer).__name__ == type(make()).__name__
                assert int(np.asarray(model.optimizer.iterations)) == steps, (name, ending)
                assert close(fit(keras, model, None, data()), expected.get_weights()), (name, ending)


@with_each_keras("c9", ranks=(1,))
def test_a_file_of_a_wrapped_optimizer_names_nothing_of_ours():
    keras, hvd = modules()
    if is_keras3(keras):
        serialized = keras.optimizers.serialize(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
        assert serialized["module"] == "keras.optimizers"
        assert serialized["registered_name"] is None
    for make in (keras.optimizers.SGD, keras.optimizers.Adam):
        wrapped, plain = hvd.DistributedOptimizer(make(0.5)), make(0.5)
        ours, theirs = keras.optimizers.serialize(wrapped), keras.optimizers.serialize(plain)
        ours["config"].pop("name"), theirs["config"].pop("name")
        assert ours == theirs
        assert type(wrapped).__module__ == "horovod._keras"
        assert isinstance(type(wrapped).from_config(wrapped.get_config()), type(wrapped))
        scaled = hvd.DistributedOptimizer(keras.mixed_precision.LossScaleOptimizer(make(0.5)))
        assert "horovod" not in str(keras.optimizers.serialize(scaled))


@with_each_keras("c18", ranks=(1,))
def test_optimizers_that_keras_does_not_know():
    keras, hvd = modules()

    class Own(keras.optimizers.SGD):
        pass

    @keras.utils.register_keras_serializable("tests")
    class Registered(keras.optimizers.SGD):
        pass

    for kind, options in (
        (Own, {"custom_optimizers": [Own]}),
        (Own, {"custom_objects": {"Own": Own}}),
        (Registered, {}),
    ):
        model = trained(keras, hvd.DistributedOptimizer, lambda kind=kind: kind(0.1))
        with tempfile.TemporaryDirectory() as folder:
            model.save(os.path.join(folder, "model.keras"))
            again = hvd.load_model(os.path.join(folder, "model.keras"), **options)
        assert isinstance(again.optimizer, kind)
        assert hasattr(again.optimizer, "register_local_var")
    with pytest.raises(TypeError, match="custom_optimizers"):
        hvd.load_model("nowhere", custom_optimizers=["Own"])
    if is_keras3(keras):
        with pytest.raises(ValueError, match="no legacy optimizers"):
            hvd.load_model("nowhere", legacy_opts=True)
        return
    model = trained(keras, lambda plain: plain, lambda: keras.optimizers.legacy.SGD(0.1))
    with tempfile.TemporaryDirectory() as folder:
        model.save(os.path.join(folder, "model.h5"))
        again = hvd.load_model(os.path.join(folder, "model.h5"), legacy_opts=True)
    assert isinstance(again.optimizer, keras.optimizers.legacy.SGD)


@with_each_keras("b10", ranks=(1,))
def test_checkpoints_of_tensorflow():
    keras, hvd = modules()
    import tensorflow as tf

    model = trained(keras, hvd.DistributedOptimizer, lambda: keras.optimizers.Adam(0.01))
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(os.path.join(folder, "state"))
        other = trained(keras, lambda plain: plain, lambda: keras.optimizers.Adam(0.5))
        tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path).assert_existing_objects_matched()
    assert close(model.get_weights(), other.get_weights(), 0.0)
    assert np.isclose(float(np.asarray(other.optimizer.learning_rate)), 0.01)


@with_each_keras("c1", ranks=(1,))
def test_wrong_arguments():
    keras, hvd = modules()
    sgd = keras.optimizers.SGD

    def refused(error, text, optimizer=None, **options):
        with pytest.raises(error, match=text):
            hvd.DistributedOptimizer(sgd(0.1) if optimizer is None else optimizer, **options)

    refused(TypeError, "no Keras optimizer", "sgd")
    refused(TypeError, "no Keras optimizer", sgd)
    refused(ValueError, "Average or hvd.Sum only", op=2)
    refused(ValueError, "op=17", op=17)
    refused(ValueError, "needs op=hvd.Average", op=hvd.Sum, gradient_predivide_factor=2.0)
    refused(ValueError, "backward_passes_per_step", backward_passes_per_step=0)
    refused(TypeError, "backward_passes_per_step", backward_passes_per_step=1.5)
    refused(ValueError, "groups", groups=0)
    refused(ValueError, "exclusive", groups=2, num_groups=2)
    refused(TypeError, "compression", compression="fp16")
    if is_keras3(keras):
        accumulating = sgd(0.1, gradient_accumulation_steps=2)
        refused(ValueError, "exclude each other", accumulating, backward_passes_per_step=2)
    for name in ("LearningRateWarmupCallback", "LearningRateScheduleCallback"):
        with pytest.raises(ValueError, match="initial_lr"):
            getattr(hvd.callbacks, name)(None, 3)
    with pytest.raises(TypeError, match="root_rank"):
        hvd.callbacks.BroadcastGlobalVariablesCallback("first")


@with_each_keras("c1", ranks=(1,))
def test_wrapping_again_and_again_leaves_nothing_behind():
    keras, hvd = modules()
    makers = [keras.optimizers.SGD] + ([] if is_keras3(keras) else [keras.optimizers.legacy.SGD])
    for make in makers:
        before = len(make.__subclasses__())
        for round_number in range(4):
            layer = keras.layers.Dense(1)
            layer.build([1, 1])
            made = [
                hvd.DistributedOptimizer(make(0.1), name=f"round_{round_number}", op=hvd.Sum),
                hvd.DistributedOptimizer(make(0.1), groups=[layer.trainable_variables]),
                hvd.PartialDistributedOptimizer(make(0.1), local_layers=layer),
            ]
            assert [one._hvd.settings.op for one in made] == [hvd.Sum, hvd.Average, hvd.Average]
            assert made[1]._hvd.settings.groups == [layer.trainable_variables]
            assert made[2]._hvd.settings.local_layers is layer
        held = weakref.ref(layer)
        del layer, made
        gc.collect()
        assert held() is None
        assert len(make.__subclasses__()) - before <= 3


@with_each_keras("c1", ranks=(1,))
def test_one_made_from_a_configuration_has_the_options_of_the_wrapped_one():
    keras, hvd = modules()
    import tensorflow as tf

    options = {"op": hvd.Sum, "compression": hvd.Compression.fp16, "backward_passes_per_step": 2}
    wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), **options)
    for again in (type(wrapped).from_config(wrapped.get_config()), wrapped.from_config(wrapped.get_config())):
        assert again._hvd is not wrapped._hvd
        assert {name: getattr(again._hvd.settings, name) for name in options} == options
    own = keras.layers.Dense(1)
    partial = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.5), local_layers=own)
    again = type(partial).from_config(partial.get_config())
    with pytest.raises(ValueError, match="local_layers"):  # the configuration does not hold them
        again._hvd.reduce([tf.constant(1.0)], [tf.Variable(1.0)])


@with_each_keras("c1", ranks=(1,))
def test_wrapping_a_wrapped_one():
    keras, hvd = modules()
    import tensorflow as tf

    sgd, scaling = keras.optimizers.SGD, keras.mixed_precision.LossScaleOptimizer
    first, second, layer = tf.Variable(1.0), tf.Variable(1.0), keras.layers.Dense(1)
    for options in (
        {},
        {"op": hvd.Sum},
        {"compression": hvd.Compression.fp16},
        {"groups": [[first, second]]},
        {"groups": 2},
        {"local_layers": [layer]},
    ):
        wrap = hvd.PartialDistributedOptimizer if "local_layers" in options else hvd.DistributedOptimizer
        wrapped = wrap(sgd(0.1), **options)
        assert wrap(wrapped, **options) is wrapped  # it does what is wanted
        scaled = scaling(wrapped)
        assert wrap(scaled, **options) is scaled
        for name in options:
            for other in (wrapped, scaled):
                with pytest.raises(ValueError, match=f"distributed already, with other options: {name}="):
                    hvd.DistributedOptimizer(other)
    wrapped = hvd.DistributedOptimizer(sgd(0.1), groups=[[first, second]])
    for groups in ([[second, first]], [[first], [second]], 2):
        with pytest.raises(ValueError, match="groups="):
            hvd.DistributedOptimizer(wrapped, groups=groups)
    with pytest.raises(ValueError, match="all options"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(sgd(0.1)), op=hvd.Sum, backward_passes_per_step=3)


@with_each_keras("a20", ranks=(1,))
def test_one_process_trains_as_without_us():
    keras, hvd = modules()
    import tensorflow as tf

    plain, wrapped = keras.optimizers.Adam(0.01), hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
    variable = tf.Variable(np.ones(3))
    graphs = []
    for optimizer in (plain, wrapped):
        optimizer.build([variable])
        step = tf.function(
            lambda optimizer=optimizer: optimizer.apply_gradients([(tf.ones([3], tf.float64), variable)])
        )
        graphs.append([one.type for one in step.get_concrete_function().graph.get_operations()])
    assert graphs[0] == graphs[1]


def test_keras_on_a_backend_that_cannot_train_is_an_error():
    program = """
import keras
keras.config.backend = lambda: "numpy"
try:
    import horovod.keras
except NotImplementedError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert "Keras runs on numpy: set KERAS_BACKEND to tensorflow, jax or torch" in result.stdout, result


@with_each_keras(ranks=(1,))
def test_examples_in_the_documentation_run():
    import doctest
    import importlib

    keras, _ = modules()
    keras.backend.set_floatx("float32")
    keras.mixed_precision.set_global_policy("float32")
    names = ["horovod.tensorflow.keras", "horovod.tensorflow.keras.callbacks"]
    for name in names + (["horovod.keras"] if is_keras3(keras) else []):
        result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
        assert result.attempted > 5, name
        assert result.failed == 0, name
