# SPDX-License-Identifier: Apache-2.0
"""Which arrays operations take, and what they say about the others."""

import horovod.numpy as hvd
import ml_dtypes
import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("engine")


def results_of(value):
    """What every operation that takes any array makes of it in a job of one rank: the same."""
    return [
        hvd.allreduce(value),
        hvd.broadcast(value, 0),
        hvd.synchronize(hvd.allreduce_async(value)),
        hvd.synchronize(hvd.broadcast_async(value, 0)),
    ]


@pytest.mark.parametrize(
    "value",
    [3.5, [1.0, 2.0], [[1, 2], [3, 4]], np.float32(1.5), np.zeros(()), np.zeros((0, 3)), []],
)
def test_inputs_are_what_asarray_takes(value):
    expected = np.asarray(value)
    for result in results_of(value):
        assert result.dtype == expected.dtype
        assert result.shape == expected.shape
        np.testing.assert_array_equal(result, expected)


def test_a_repeated_name_is_no_promise_of_an_array_that_needs_no_copy():
    array = np.arange(6.0).reshape(2, 3)
    frozen = array.copy()
    frozen.flags.writeable = False
    swapped, reversed_ = array.astype(">f8"), array[::-1, ::-1][::-1, ::-1][::-1]
    for one in (array, array, array, frozen, array.T.copy().T, reversed_, swapped, np.ma.filled(array)):
        np.testing.assert_array_equal(hvd.allreduce(one, name="layouts"), one)
        np.testing.assert_array_equal(hvd.synchronize(hvd.allreduce_async(one, name="layouts")), one)
    for call in (hvd.allreduce_, hvd.allreduce_async_):
        for _ in range(3):
            result = call(array, name="in place")
            assert (result if call is hvd.allreduce_ else hvd.synchronize(result)) is array
        for wrong, words in ((frozen, "read-only"), (reversed_, "contiguous"), (swapped, "byte order")):
            with pytest.raises(ValueError, match=words):
                call(wrong, name="in place")
    with pytest.raises(TypeError, match="prescale_factor"):
        hvd.allreduce(array, name="layouts", prescale_factor=[1.0])


def test_layouts_that_need_a_copy():
    matrix = np.arange(12.0).reshape(3, 4)
    odd = np.frombuffer(b"x" + matrix.tobytes(), np.uint8)[1:].view(np.float64)
    cases = [matrix.T, matrix[:, ::2], matrix[::-1], np.asfortranarray(matrix), np.broadcast_to(matrix, (2, 3, 4))]
    for array in [*cases, matrix.astype(">f8"), odd]:
        for result in (*results_of(array), hvd.allgather(array), hvd.synchronize(hvd.allgather_async(array))):
            np.testing.assert_array_equal(result, array)
            assert result.dtype == np.float64


def test_inputs_may_be_read_only():
    frozen = np.arange(5.0)
    frozen.flags.writeable = False
    for result in (*results_of(frozen), hvd.allgather(frozen)):
        np.testing.assert_array_equal(result, frozen)
        assert result.flags.writeable


IN_PLACE = {
    "allreduce_": hvd.allreduce_,
    "allreduce_async_": lambda array: hvd.synchronize(hvd.allreduce_async_(array)),
    "broadcast_": lambda array: hvd.broadcast_(array, 0),
    "broadcast_async_": lambda array: hvd.synchronize(hvd.broadcast_async_(array, 0)),
}


@pytest.mark.parametrize("function", IN_PLACE)
def test_in_place_returns_the_array_itself(function):
    whole = np.arange(12.0).reshape(3, 4)
    odd = np.zeros(17, np.uint8)[1:].view(np.float64)
    for array in (whole, whole[1:], np.array(2.0), np.zeros((0, 3)), np.zeros((1, 4))[:, ::-1][:0], odd):
        before = array.copy()
        assert IN_PLACE[function](array) is array
        np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("function", IN_PLACE)
def test_in_place_needs_an_array_that_can_be_written(function):
    matrix = np.arange(12.0).reshape(3, 4)
    frozen = matrix.copy()
    frozen.flags.writeable = False
    cases = {
        r"tensor is read-only": frozen,
        r"tensor has shape \(4, 3\) and strides \(8, 32\).*contiguous": matrix.T,
        r"tensor has .* strides .*contiguous": matrix[:, ::2],
        r"tensor=\[1.0\] is a list.*NumPy array": [1.0],
        r"tensor=2.5 is a float.*NumPy array": 2.5,
        r"tensor=.*2.5.* is a float64.*NumPy array": np.float64(2.5),
        r"tensor has element type >f8.*byte order": matrix.astype(">f8"),
        r"tensor is a masked array": np.ma.masked_array(matrix, matrix > 3),
        r"tensor has element type complex128, which is not supported": matrix.astype(complex),
    }
    for text, bad in cases.items():
        with pytest.raises(ValueError, match=f"(?s){text}") as caught:
            IN_PLACE[function](bad)
        assert function in str(caught.value) or "not supported" in text


FUNCTIONS = {
    "allreduce": hvd.allreduce,
    "allreduce_async": hvd.allreduce_async,
    "allgather": hvd.allgather,
    "allgather_async": hvd.allgather_async,
    "broadcast": lambda array: hvd.broadcast(array, 0),
    "broadcast_async": lambda array: hvd.broadcast_async(array, 0),
}
UNSUPPORTED = ["uint32", "uint64", "complex64", "complex128", "longdouble", "S3", "U3", "M8[s]", "m8[s]", "V4", object]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [*UNSUPPORTED, ">c8", [("a", "f4")], ml_dtypes.float8_e4m3fn])
def test_types_that_do_not_exist(function, dtype):
    name = str(np.dtype(dtype).newbyteorder("="))
    with pytest.raises(ValueError, match=r"(?s)tensor has element type .*not supported.*float64") as caught:
        FUNCTIONS[function](np.zeros(2, dtype))
    assert name in str(caught.value)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("value", [None, "text", {"a": 1}, object(), [None, 1], [[1], [1, 2]]])
def test_things_that_are_no_arrays(function, value):
    with pytest.raises(ValueError, match="tensor") as caught:
        FUNCTIONS[function](value)
    assert "not supported" in str(caught.value) or f"tensor={value!r}" in str(caught.value)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_mask_is_not_lost_without_a_word(function):
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    with pytest.raises(ValueError, match=r"tensor is a masked array.*filled"):
        FUNCTIONS[function](masked)


def test_types_that_need_no_copy_of_their_own_kind():
    for dtype in (np.longlong, np.intc, "=i4", "<i2", np.dtype("i4", metadata={"unit": "m"})):
        array = np.arange(4).astype(dtype)
        np.testing.assert_array_equal(hvd.allreduce(array, op=hvd.Sum), array)
