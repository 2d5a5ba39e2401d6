# SPDX-License-Identifier: Apache-2.0
"""Every operation in a job of one rank: everything but the peers."""

import threading

import horovod.numpy as hvd
import ml_dtypes
import numpy as np
import pytest
from horovod.common.exceptions import HorovodInternalError

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
    assert hvd.allreduce(2.0, op=hvd.Adasum) == 2.0
    with pytest.raises(ValueError):
        hvd.allreduce(2.0, op=17)


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


@pytest.mark.parametrize(
    "call",
    [
        lambda x: hvd.reducescatter(x),
        lambda x: hvd.reducescatter_async(x),
        lambda x: hvd.grouped_reducescatter([[1.0], x]),
    ],
)
@pytest.mark.usefixtures("engine")
def test_a_scalar_has_no_rows_to_scatter(call):
    with pytest.raises(ValueError, match="a scalar has none: give an array"):
        call(np.float32(1))


@pytest.mark.usefixtures("engine")
def test_broadcast_root_must_exist():
    for root in (1, -1):
        with pytest.raises(ValueError, match=f"invalid root rank {root}"):
            hvd.broadcast([1.0], root)


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
