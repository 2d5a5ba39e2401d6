# SPDX-License-Identifier: Apache-2.0
"""One process with no launcher: everything but the peers."""

import doctest
import gc
import importlib
import multiprocessing
import os
import signal
import threading

import horovod.numpy as hvd
import ml_dtypes
import numpy as np
import pytest
from horovod.common.exceptions import HorovodInternalError


@pytest.fixture
def engine():
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture
def no_engine():
    hvd.shutdown()


QUESTIONS = [
    hvd.rank,
    hvd.size,
    hvd.local_rank,
    hvd.local_size,
    hvd.cross_rank,
    hvd.cross_size,
    hvd.is_homogeneous,
    lambda: hvd.allreduce([1.0]),
    lambda: hvd.allreduce_async([1.0]),
    lambda: hvd.broadcast([1.0], 0),
    lambda: hvd.allgather([1.0]),
    hvd.barrier,
]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.usefixtures("no_engine")
def test_before_init_everything_names_init(question):
    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match=r"hvd\.init\(\)"):
        question()


@pytest.mark.usefixtures("engine")
def test_ranks():
    assert hvd.is_initialized()
    assert [hvd.rank(), hvd.local_rank(), hvd.cross_rank()] == [0, 0, 0]
    assert [hvd.size(), hvd.local_size(), hvd.cross_size()] == [1, 1, 1]
    assert hvd.is_homogeneous() is True
    assert hvd.global_process_set.ranks == [0]
    assert hvd._basics._get_process_set_ids_and_ranks() == {0: [0]}


def test_init_and_shutdown_may_be_repeated():
    for i in range(20):
        hvd.init()
        hvd.init()
        assert hvd.allreduce(i, op=hvd.Sum, name="x") == i
        hvd.shutdown()
        hvd.shutdown()
        assert not hvd.is_initialized()


TYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", ml_dtypes.bfloat16]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product])
def test_allreduce_of_one_rank_changes_nothing(dtype, op):
    array = np.arange(7).astype(dtype)
    result = hvd.allreduce(array, op=op)
    assert result.dtype == array.dtype
    np.testing.assert_array_equal(result, array)
    assert result is not array


@pytest.mark.usefixtures("engine")
def test_bool_knows_min_and_max_only():
    array = np.array([True, False])
    np.testing.assert_array_equal(hvd.allreduce(array, op=hvd.Min), array)
    np.testing.assert_array_equal(hvd.allreduce(array, op=hvd.Max), array)
    for op in (hvd.Average, hvd.Sum, hvd.Product):
        with pytest.raises(ValueError, match="bool"):
            hvd.allreduce(array, op=op)


@pytest.mark.usefixtures("engine")
def test_scale_factors():
    assert hvd.allreduce(np.float32(3), op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5) == 3
    np.testing.assert_array_equal(hvd.allreduce(np.array([5, -5]), op=hvd.Sum, prescale_factor=0.5), [2, -2])


@pytest.mark.usefixtures("engine")
def test_average_is_deprecated_and_excludes_op():
    with pytest.warns(DeprecationWarning, match="average"):
        assert hvd.allreduce(2.0, average=True) == 2.0
    with pytest.warns(DeprecationWarning, match="average"):
        assert hvd.synchronize(hvd.allreduce_async(2.0, average=False)) == 2.0
    with pytest.raises(ValueError, match="exclusive"):
        hvd.allreduce(2.0, average=True, op=hvd.Sum)
    with pytest.raises(NotImplementedError, match="Adasum"):
        hvd.allreduce(2.0, op=hvd.Adasum)
    with pytest.raises(ValueError):
        hvd.allreduce(2.0, op=17)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    "value", [3.5, [1.0, 2.0], [[1, 2], [3, 4]], np.float32(1.5), np.zeros(()), np.zeros((0, 3)), []]
)
def test_inputs_are_what_asarray_takes(value):
    expected = np.asarray(value)
    for result in (hvd.allreduce(value), hvd.broadcast(value, 0), hvd.synchronize(hvd.broadcast_async(value, 0))):
        assert result.dtype == expected.dtype
        assert result.shape == expected.shape
        np.testing.assert_array_equal(result, expected)


@pytest.mark.usefixtures("engine")
def test_layouts_that_need_a_copy():
    matrix = np.arange(12.0).reshape(3, 4)
    for array in (matrix.T, matrix[:, ::2], np.asfortranarray(matrix), matrix.astype(">f8")):
        np.testing.assert_array_equal(hvd.allreduce(array), array)
        np.testing.assert_array_equal(hvd.allgather(array), array)


@pytest.mark.usefixtures("engine")
def test_in_place_needs_an_array_that_can_be_written():
    matrix = np.arange(12.0).reshape(3, 4)
    assert hvd.allreduce_(matrix) is matrix
    assert hvd.broadcast_(matrix, 0) is matrix
    assert hvd.synchronize(hvd.allreduce_async_(matrix)) is matrix
    assert hvd.synchronize(hvd.broadcast_async_(matrix, 0)) is matrix
    frozen = matrix.copy()
    frozen.flags.writeable = False
    cases = {"contiguous": matrix.T, "read-only": frozen, "NumPy array": [1.0], "byte order": matrix.astype(">f8")}
    for text, bad in cases.items():
        for function in (hvd.allreduce_, hvd.allreduce_async_):
            with pytest.raises(ValueError, match=text):
                function(bad)
        for function in (hvd.broadcast_, hvd.broadcast_async_):
            with pytest.raises(ValueError, match=text):
                function(bad, 0)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("dtype", ["uint32", "uint64", "complex64", "S3", object])
def test_types_that_do_not_exist(dtype):
    for function in (hvd.allreduce, hvd.allgather, hvd.allreduce_async):
        with pytest.raises(ValueError, match="not supported"):
            function(np.zeros(2, dtype))


@pytest.mark.usefixtures("engine")
def test_allgather():
    array = np.arange(6, dtype=np.int16).reshape(3, 2)
    result = hvd.allgather(array)
    np.testing.assert_array_equal(result, array)
    result[0, 0] = 9  # writable, and nobody else's
    assert array[0, 0] == 0
    assert hvd.synchronize(hvd.allgather_async(np.zeros((0, 4)))).shape == (0, 4)
    with pytest.raises(HorovodInternalError, match="rank-zero tensor"):
        hvd.allgather(1.0)


@pytest.mark.usefixtures("engine")
def test_results_outlive_shutdown_and_each_other():
    arrays = [hvd.allgather(np.full(1000, i)) for i in range(50)]
    hvd.shutdown()
    gc.collect()
    for i, array in enumerate(arrays):
        assert (array == i).all()


@pytest.mark.usefixtures("engine")
def test_broadcast_root_must_exist():
    for root in (1, -1):
        with pytest.raises(ValueError, match=f"invalid root rank {root}"):
            hvd.broadcast([1.0], root)


@pytest.mark.usefixtures("engine")
def test_handles():
    handle = hvd.allreduce_async([1.0, 2.0], name="a")
    assert isinstance(handle, int)
    while not hvd.poll(handle):
        pass
    np.testing.assert_array_equal(hvd.synchronize(handle), [1, 2])
    assert hvd.synchronize(handle) is None
    assert hvd.synchronize(123456789) is None
    with pytest.raises(ValueError, match="handle"):
        hvd.poll(handle)


def test_a_handle_of_an_earlier_life_fails():
    hvd.init()
    handle = hvd.allreduce_async([1.0])
    hvd.shutdown()
    hvd.init()
    try:
        result = hvd.synchronize(handle)
    except (HorovodInternalError, ValueError):
        pass
    else:  # it was over before shutdown
        np.testing.assert_array_equal(result, [1.0])
    finally:
        hvd.shutdown()


def test_arena_memory():
    early = hvd.empty((3, 5), np.float32)
    assert early.shape == (3, 5)
    assert early.dtype == np.float32
    assert not early.any()
    assert early.__array_interface__["data"][0] % 64 == 0
    hvd.init()
    early[:] = 1
    assert hvd.allreduce_(early) is early
    hvd.shutdown()
    early += 1  # still there
    assert (early == 2).all()
    part = early[1]
    del early
    gc.collect()
    assert (part == 2).all()
    assert hvd.empty(4).dtype == np.float64
    assert hvd.empty((), "int32").shape == ()
    assert hvd.empty((0, 3)).shape == (0, 3)
    assert hvd.empty(2, ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    with pytest.raises(ValueError, match="not supported"):
        hvd.empty(3, "complex64")


def test_arena_memory_is_given_back():
    for _ in range(2000):
        hvd.empty(1 << 23, np.uint8)[-1] = 1  # 16 GiB in all


def test_process_set_objects():
    some = hvd.ProcessSet([3, 1, 2])
    assert str(some) == "ProcessSet(process_set_id=None, ranks=[1, 2, 3], mpi_comm=None)"
    assert (some.size(), some.rank(), some.included()) == (None, None, None)
    for bad in ([1.5], ["a"], [True], 3):
        with pytest.raises(ValueError):
            hvd.ProcessSet(bad)
    assert hvd.ProcessSet(np.arange(2)).ranks == [0, 1]
    assert hvd.global_process_set.process_set_id == 0
    with pytest.raises(ValueError, match="init"):
        hvd.add_process_set([0])
    assert hvd.remove_process_set(hvd.global_process_set) is False
    assert hvd.remove_process_set(some) is False


def test_process_sets_given_to_init():
    with pytest.raises(ValueError, match="same ranks"):
        hvd.init(process_sets=[hvd.ProcessSet([0]), hvd.ProcessSet([0])])
    with pytest.raises(ValueError):
        hvd.init(process_sets=[hvd.ProcessSet([0, 1])])
    with pytest.raises(ValueError, match="dynamic"):
        hvd.init(process_sets="Dynamic")
    with pytest.raises(ValueError, match="static"):
        hvd.init(process_sets="static")
    with pytest.raises(NotImplementedError, match="comm"):
        hvd.init(comm=[0, 1])
    assert not hvd.is_initialized()
    hvd.init()
    stranger = hvd.ProcessSet([0])
    with pytest.raises(ValueError, match="not registered"):
        hvd.allreduce(1.0, process_set=stranger)
    stranger.process_set_id = 77
    with pytest.raises(ValueError, match=r"[Pp]rocess set"):
        hvd.allreduce(1.0, process_set=stranger)
    with pytest.raises(ValueError):
        stranger.size()
    hvd.shutdown()


@pytest.mark.usefixtures("engine")
def test_compression():
    values = np.array([1.0, 1e-9, 3.3])
    assert hvd.Compression.none.compress(values) == (values, None)
    np.testing.assert_array_equal(
        hvd.allreduce(values, compression=hvd.Compression.fp16), values.astype("f2").astype("f8")
    )
    assert hvd.allreduce(np.arange(3), compression=hvd.Compression.fp16).dtype == np.int64


@pytest.mark.usefixtures("engine")
def test_objects():
    value = {"a": [1, 2], "f": 2.5}
    assert hvd.broadcast_object(value) == value
    assert hvd.allgather_object(value) == [value]
    assert hvd.allgather_object(None, name="n") == [None]


@pytest.mark.usefixtures("engine")
def test_broadcast_parameters():
    params = {"w": np.ones(3), "b": np.zeros(1)}
    hvd.broadcast_parameters(params, 0)
    hvd.broadcast_parameters([np.ones(2), ("x", np.ones(3))], 0)
    for bad in (3, "text"):
        with pytest.raises(ValueError):
            hvd.broadcast_parameters(bad, 0)


@pytest.mark.usefixtures("engine")
def test_threads_share_the_engine():
    failures = []

    def work(thread):
        try:
            for i in range(100):
                assert hvd.allreduce(float(i), op=hvd.Sum, name=f"{thread}.{i % 3}") == i
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def _use_in_child(queue):
    try:
        hvd.allreduce(1.0)
    except BaseException as error:
        queue.put(f"{type(error).__name__}: {error}")
    else:
        queue.put("it worked")


@pytest.mark.usefixtures("engine")
def test_a_forked_child_gets_an_error():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_use_in_child, args=(queue,))
    child.start()
    text = queue.get(timeout=20)
    child.join(20)
    assert "Error" in text
    assert "fork" in text
    assert hvd.allreduce(1.0) == 1.0  # the parent is unharmed


def test_control_c_ends_a_wait():
    code = """
import os, signal, threading
import horovod.numpy as hvd
from horovod.common import request, abi
class Stuck:
    def hvd_wait(self, *_): return abi.IN_PROGRESS
request.load = lambda: Stuck()
request._pending[5] = None
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    hvd.synchronize(5)
except KeyboardInterrupt:
    print("interrupted")
"""
    import subprocess
    import sys

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert result.stdout == "interrupted\n", result.stderr


def test_exit_in_the_middle_is_clean():
    code = """
import sys, numpy as np, horovod.numpy as hvd
hvd.init()
hvd.allreduce_async(np.ones(10))
kept = hvd.allgather(np.ones(10))
sys.exit(7)
"""
    import subprocess
    import sys

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (result.returncode, result.stderr) == (7, "")


@pytest.mark.parametrize(
    "module",
    [
        "horovod.numpy",
        "horovod.numpy.ops",
        "horovod.numpy.adapter",
        "horovod.common.objects",
        "horovod.common.basics",
        "horovod.common.process_sets",
    ],
)
def test_examples_in_docstrings(module):
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted > 0
    assert results.failed == 0
    hvd.shutdown()


def test_signals_are_left_to_python():
    before = signal.getsignal(signal.SIGINT)
    hvd.init()
    assert signal.getsignal(signal.SIGINT) is before
    hvd.shutdown()
    assert os.getpid()
