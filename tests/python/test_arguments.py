# SPDX-License-Identifier: Apache-2.0
"""A wrong argument is an error that names the argument, shows its value and says what is allowed; nothing is sent."""

import re
import warnings

import horovod.numpy as hvd
import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("engine")

REDUCTIONS = [hvd.allreduce, hvd.allreduce_async, hvd.allreduce_, hvd.allreduce_async_]
BROADCASTS = [hvd.broadcast, hvd.broadcast_async, hvd.broadcast_, hvd.broadcast_async_, hvd.broadcast_object]
GATHERS = [hvd.allgather, hvd.allgather_async, hvd.allgather_object]


def says(error, argument, value, allowed):
    """Raises `error` whose text has all three."""
    pattern = f"(?s){re.escape(f'{argument}={value}')}.*{re.escape(allowed)}"
    return pytest.raises(error, match=pattern)


@pytest.mark.parametrize("function", REDUCTIONS)
@pytest.mark.parametrize(
    ("error", "op"),
    [
        (TypeError, "Sum"),
        (TypeError, 1.0),
        (TypeError, True),
        (TypeError, [1]),
        (TypeError, np.array([1, 2])),
        (ValueError, 17),
        (ValueError, -1),
        (ValueError, 2**32 + 1),
    ],
)
def test_op(function, error, op):
    with says(error, "op", repr(op), "hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max or hvd.Product"):
        function(np.ones(2), op=op)


@pytest.mark.parametrize("function", REDUCTIONS)
def test_op_may_be_any_whole_number_type(function):
    result = function(np.ones(2), op=np.int64(hvd.Sum))
    assert (np.asarray(hvd.synchronize(result) if isinstance(result, int) else result) == 1).all()


@pytest.mark.parametrize("function", REDUCTIONS)
@pytest.mark.parametrize("average", ["a name", 2, 1.0, np.ones(2)])
def test_average(function, average):
    with says(TypeError, "average", repr(average), "op=hvd.Average"):
        function(np.ones(2), average)


def test_the_warning_of_average_points_at_the_caller():
    for call in (hvd.allreduce, hvd.allreduce_):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(np.ones(2), average=np.bool_(True))
        assert [one.filename for one in caught] == [__file__]


@pytest.mark.parametrize("function", REDUCTIONS)
@pytest.mark.parametrize("factor", ["prescale_factor", "postscale_factor"])
@pytest.mark.parametrize(
    ("error", "value"),
    [
        (TypeError, "2"),
        (TypeError, None),
        (TypeError, 1j),
        (TypeError, [1.0]),
        (TypeError, np.ones(1)),
        (ValueError, float("nan")),
        (ValueError, float("inf")),
        (ValueError, 10**400),
    ],
)
def test_factors(function, factor, error, value):
    with says(error, factor, "" if isinstance(value, int) else repr(value), "a finite number"):
        function(np.ones(2), **{factor: value})


def test_factors_may_be_any_real_number_type():
    for value in (2, np.float32(2), np.int8(2), np.array(2.0)):
        assert hvd.allreduce(3.0, op=hvd.Sum, prescale_factor=value, postscale_factor=value) == 12


@pytest.mark.parametrize("function", [*REDUCTIONS, *BROADCASTS, *GATHERS])
@pytest.mark.parametrize("process_set", [0, None, [0], "global"])
def test_process_set(function, process_set):
    more = {"root_rank": 0} if function in BROADCASTS else {}
    with says(TypeError, "process_set", repr(process_set), "hvd.ProcessSet"):
        function(np.ones(2), process_set=process_set, **more)


def test_process_set_of_barrier_and_remove():
    with says(TypeError, "process_set", "3", "hvd.ProcessSet"):
        hvd.barrier(3)
    with says(TypeError, "process_set", "3", "hvd.ProcessSet"):
        hvd.remove_process_set(3)


@pytest.mark.parametrize("identifier", ["1", 1.0, 2**32, -1, True])
def test_process_set_with_a_bad_id(identifier):
    broken = hvd.ProcessSet([0])
    broken.process_set_id = identifier
    with pytest.raises(ValueError, match=r"process_set=ProcessSet\(process_set_id=.*[Pp]rocess set"):
        hvd.allreduce(np.ones(2), process_set=broken)


@pytest.mark.parametrize("compression", [None, "fp16", hvd.Compression, 16])
def test_compression(compression):
    with says(
        TypeError,
        "compression",
        repr(compression),
        "hvd.Compression.none, hvd.Compression.fp16 or hvd.Compression.bf16",
    ):
        hvd.allreduce(np.ones(2), compression=compression)


def test_compression_may_be_ones_own():
    class Half:
        @staticmethod
        def compress(tensor):
            return tensor / 2, None

        @staticmethod
        def decompress(tensor, ctx):
            return tensor

    assert hvd.allreduce(np.float64(3), compression=Half) == 1.5


@pytest.mark.parametrize("function", BROADCASTS)
@pytest.mark.parametrize("root", ["0", None, 0.0, False, [0], np.False_])
def test_root_rank_that_is_no_number(function, root):
    with says(TypeError, "root_rank", repr(root), " is not a whole number: give a whole number, 0 or more"):
        function(np.ones(2), root)


@pytest.mark.parametrize("function", BROADCASTS)
@pytest.mark.parametrize("root", [-1, 1, 2**32])
def test_root_rank_that_no_rank_has(function, root):
    with pytest.raises(ValueError, match=f"invalid root rank {root}"):
        function(np.ones(2), root)


def test_root_rank_may_be_any_whole_number_type():
    for root in (np.int32(0), np.uint8(0), np.array(0)):
        assert hvd.broadcast_object("x", root) == "x"
        assert (hvd.broadcast([1, 2], root) == [1, 2]).all()


@pytest.mark.parametrize("function", [hvd.poll, hvd.synchronize])
@pytest.mark.parametrize("handle", ["1", None, [1, 2], 1.0, {}])
def test_handle(function, handle):
    with says(TypeError, "handle", repr(handle), "_async"):
        function(handle)


def test_process_sets_of_init():
    hvd.shutdown()
    for bad in (5, [5], [["a"]], [hvd.ProcessSet([0]), None], [[2**32]], [[-1]]):
        with pytest.raises((TypeError, ValueError), match="process_sets"):
            hvd.init(process_sets=bad)
    assert not hvd.is_initialized()


def test_long_values_are_cut():
    with pytest.raises(TypeError, match="op=") as caught:
        hvd.allreduce(np.ones(2), op="x" * 100_000)
    assert len(str(caught.value)) < 1000


def test_a_wrong_call_without_a_name_uses_up_no_number():
    # Unnamed operations are matched by number: a wrong call on one rank must not put it out of step.
    from horovod.common import names

    names.reset()
    bad = [
        lambda: hvd.allreduce(np.ones(2), op=9),
        lambda: hvd.allreduce(np.ones(2), prescale_factor=None),
        lambda: hvd.allreduce(np.ones(2, "complex64")),
        lambda: hvd.broadcast(np.ones(2), -1),
        lambda: hvd.broadcast(np.ones(2), "0"),
        lambda: hvd.allgather(np.ones(2), process_set=None),
        lambda: hvd.alltoall(np.ones(2), splits=[1.0]),
        lambda: hvd.grouped_allreduce([np.ones(2), np.ones(2, "complex64")]),
        # What only the library finds
        lambda: hvd.allreduce([True], op=hvd.Sum),
        lambda: hvd.allreduce_async([True], op=hvd.Sum),
        lambda: hvd.allreduce([1], op=hvd.Adasum),
        lambda: hvd.broadcast(np.ones(2), 7),
        lambda: hvd.alltoall(np.ones(2), splits=[3]),
        lambda: hvd.alltoall(np.ones(2), splits=[1, 1]),
        lambda: hvd.reducescatter([True]),
        lambda: hvd.grouped_allreduce([np.ones(2), [True]]),
    ]
    for call in bad:
        with pytest.raises((TypeError, ValueError)):
            call()
    with pytest.raises(hvd.HorovodInternalError):
        hvd.reducescatter(np.ones(2), op=hvd.Max)
    for kind in ("allreduce", "broadcast", "allgather", "alltoall", "reducescatter", "grouped_allreduce"):
        assert names.wire_name(kind, None, 0).endswith(b".noname.0")
