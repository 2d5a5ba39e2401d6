# SPDX-License-Identifier: Apache-2.0
"""Which arrays operations take, and what they say about the others."""

import horovod.numpy as hvd
import numpy as np
import pytest


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
