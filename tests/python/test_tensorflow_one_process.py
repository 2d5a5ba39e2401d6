# SPDX-License-Identifier: Apache-2.0
"""horovod.tensorflow without peers: exports, docstrings, wrong arguments, and TensorFlow's devices."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys

import pytest

tf = pytest.importorskip("tensorflow")
import horovod.tensorflow as hvd  # noqa: E402

NAMES = """
init shutdown is_initialized start_timeline stop_timeline size local_size cross_size rank local_rank cross_rank
is_homogeneous mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built
cuda_built rocm_built rank_op local_rank_op size_op local_size_op process_set_included_op Average Sum Adasum Min Max
Product ProcessSet global_process_set add_process_set remove_process_set Compression
handle_average_backwards_compatibility check_num_rank_power_of_2 gpu_available split_list vars_to_refs refs_to_vars
_executing_eagerly _make_subgraph _cache LocalGradientAggregationHelper allreduce grouped_allreduce reducescatter
grouped_reducescatter allgather grouped_allgather broadcast broadcast_ alltoall join broadcast_variables
broadcast_object broadcast_object_fn allgather_object broadcast_global_variables BroadcastGlobalVariablesHook
DistributedOptimizer DistributedGradientTape PartialDistributedGradientTape SyncBatchNormalization
_make_allreduce_grads_fn check_extension counters counters_text barrier allreduce_async poll synchronize
"""


@pytest.mark.row("i9")
@pytest.mark.parametrize("name", NAMES.split())
def test_exports(name):
    assert getattr(hvd, name) is not None
    assert name in dir(hvd)


def test_what_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        hvd.nonsense  # noqa: B018


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    "module", ["", ".aggregation", ".functions", ".handles", ".hook", ".ops", ".optimizer", ".reduction", ".tape"]
)
def test_examples_in_docstrings(module):
    results = doctest.testmod(importlib.import_module("horovod.tensorflow" + module))
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    "function",
    [
        hvd.allreduce,
        hvd.allgather,
        hvd.alltoall,
        hvd.reducescatter,
        hvd.allreduce_async,
        lambda value: hvd.grouped_allreduce([value]),
        lambda value: hvd.broadcast(value, 0),
    ],
)
def test_tensors_that_consist_of_several_are_refused_in_words(function):
    with pytest.raises(TypeError, match=r"tf\.RaggedTensor cannot be used here: .*flat_values"):
        function(tf.ragged.constant([[1.0, 2.0], [3.0]]))
    with pytest.raises(TypeError, match=r"tf\.SparseTensor cannot be used here: .*indices"):
        function(tf.sparse.from_dense([[1.0, 0.0]]))


@pytest.mark.row("b15", "a17", "g7")
@pytest.mark.usefixtures("engine")
def test_wrong_arguments():
    sgd = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    tape = tf.GradientTape()
    for make in (
        lambda **more: hvd.DistributedOptimizer(sgd, **more),
        lambda **more: hvd.DistributedGradientTape(tape, **more),
    ):
        for error, wrong in (
            (ValueError, {"groups": 0}),
            (ValueError, {"groups": -1}),
            (ValueError, {"groups": "all"}),
            (ValueError, {"groups": [1, 2]}),
            (ValueError, {"groups": True}),
            (ValueError, {"groups": [[one := tf.Variable(1.0)], [one]]}),
            (ValueError, {"groups": 2, "num_groups": 2}),
            (ValueError, {"op": 17}),
            (TypeError, {"op": "Average"}),
            (ValueError, {"op": hvd.Sum, "gradient_predivide_factor": 2.0}),
            (ValueError, {"gradient_predivide_factor": -1.0}),
            (TypeError, {"gradient_predivide_factor": "2"}),
            (TypeError, {"compression": "fp16"}),
        ):
            with pytest.raises(error):
                make(**wrong)
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="backward_passes_per_step"):
            hvd.DistributedOptimizer(sgd, backward_passes_per_step=wrong)
    with pytest.raises(ValueError, match="Adasum"):
        hvd.DistributedOptimizer(sgd, op=hvd.Adasum, average_aggregated_gradients=True)
    with pytest.raises(TypeError, match="no optimizer"):
        hvd.DistributedOptimizer("sgd")
    with pytest.raises(TypeError, match="no tape"):
        hvd.DistributedGradientTape("tape")
    with pytest.raises(ValueError, match="twice"):
        hvd.DistributedGradientTape(hvd.DistributedGradientTape(tape))
    with pytest.raises(ValueError, match="exclusive"):
        hvd.allreduce(tf.ones([1]), average=True, op=hvd.Sum)
    with pytest.raises(TypeError, match="compression"):
        hvd.allreduce(tf.ones([1]), compression=None)
    with pytest.raises(TypeError, match="root_rank"):
        hvd.BroadcastGlobalVariablesHook("0")
    helper = hvd.LocalGradientAggregationHelper(2, lambda grads, variables: grads)
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.range(1), tf.constant([2, 2]))
    with pytest.raises(ValueError, match="sparse_as_dense"):
        helper.compute_gradients([slices], [tf.Variable(tf.ones([2, 2]))])


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("dense", [True, False])
def test_sparse_as_dense_alone(dense):
    table = tf.Variable(tf.ones([4, 2]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [1, 1]))
    gradient = hvd.DistributedGradientTape(tape, sparse_as_dense=dense).gradient(loss, table)
    assert isinstance(gradient, tf.Tensor if dense else tf.IndexedSlices)
    assert tf.convert_to_tensor(gradient).numpy()[:, 0].tolist() == [0, 2, 0, 0]


@pytest.mark.usefixtures("engine")
def test_a_process_set_that_does_not_exist():
    x = tf.ones([1])
    stranger = hvd.ProcessSet([0])
    stranger.process_set_id = 77
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.range(1), tf.constant([2, 2]))
    for call in (
        lambda: hvd.allreduce(x, process_set=stranger),
        lambda: hvd.allreduce(slices, process_set=stranger),
        lambda: hvd.grouped_allreduce([x], process_set=stranger),
        lambda: hvd.allgather(x, process_set=stranger),
        lambda: hvd.broadcast(x, 0, process_set=stranger),
        lambda: hvd.alltoall(x, process_set=stranger),
        lambda: hvd.reducescatter(x, process_set=stranger),
        lambda: hvd.broadcast_variables([tf.Variable(1.0)], 0, process_set=stranger),
    ):
        for run in (call, tf.function(call)):
            with pytest.raises(ValueError, match="process set 77"):
                run()


@pytest.mark.row("c20")
@pytest.mark.usefixtures("engine")
def test_xla():
    @tf.function(jit_compile=True)
    def compiled(x):
        return hvd.allreduce(x)

    with pytest.raises(RuntimeError, match="jit_compile"):
        compiled(tf.ones([2]))

    square = tf.function(lambda x: x * x, jit_compile=True)

    @tf.function
    def in_parts(x):
        return square(hvd.allreduce(square(x)))

    assert in_parts(tf.constant(2.0)).numpy() == 16.0


@pytest.mark.row("a1", "f3")
@pytest.mark.usefixtures("no_engine")
def test_before_init():
    weights = tf.Variable(1.0)
    with tf.GradientTape() as tape:
        loss = weights * weights
    for call in (
        hvd.size,
        hvd.local_rank,
        lambda: hvd.DistributedGradientTape(tape).gradient(loss, weights),
        lambda: hvd.broadcast_object(1),
    ):
        with pytest.raises(ValueError, match=r"hvd\.init\(\)"):
            call()


@pytest.mark.row("b1", "a20", "i9")
def test_init_leaves_the_devices_of_tensorflow_alone():
    program = """
import sys, time
import tensorflow as tf
start = time.perf_counter()
import horovod.tensorflow as hvd
print(time.perf_counter() - start)
assert "keras" not in sys.modules or "keras" in before
hvd.init()
found = tf.config.experimental.list_physical_devices("GPU")
[tf.config.experimental.set_memory_growth(one, True) for one in found]
tf.config.experimental.set_visible_devices(found[hvd.local_rank() :][:1], "GPU")
tf.config.set_visible_devices(tf.config.list_physical_devices("CPU"), "CPU")
tf.config.threading.set_inter_op_parallelism_threads(1)
assert hvd.allreduce(tf.constant(2.0)).numpy() == 2.0
""".replace("import horovod", "before = set(sys.modules)\nimport horovod", 1)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
