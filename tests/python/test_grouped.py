# SPDX-License-Identifier: Apache-2.0
"""Lists of arrays: one name, one handle, all or nothing."""

import gc
import re
import weakref

import horovod.numpy as hvd
import numpy as np
import pytest
from horovod.common import request
from ranks import on_ranks
from reference import reduce, same_bits, scattered

SETS: list[hvd.ProcessSet] = []  # filled in on the ranks
REDUCTIONS = [
    hvd.grouped_allreduce,
    hvd.grouped_allreduce_async,
    hvd.grouped_allreduce_,
    hvd.grouped_allreduce_async_,
]
OTHERS = [
    hvd.grouped_allgather,
    hvd.grouped_allgather_async,
    hvd.grouped_reducescatter,
    hvd.grouped_reducescatter_async,
]
ALL = [*REDUCTIONS, *OTHERS]


def finish(result):
    return hvd.synchronize(result) if isinstance(result, int) else result


def lists():
    """Arrays of all ranks, of several types and sizes."""
    shapes = [(), (0,), (3,), (1000, 7), (100_003,)]
    types = ["float32", "float64", "int32", "float16", "float32"]
    return [
        [np.random.default_rng([rank, i]).integers(0, 50, s).astype(t) for i, (s, t) in enumerate(zip(shapes, types))]
        for rank in range(hvd.size())
    ]


@on_ranks(2, 3, 4)
def test_reductions_of_mixed_lists_in_every_form():
    everyone = lists()
    for op in (hvd.Average, hvd.Sum, hvd.Max):
        expected = [reduce(op, parts, parts[0].dtype) for parts in zip(*everyone)]
        for function in REDUCTIONS:
            mine = [array.copy() for array in everyone[hvd.rank()]]
            found = finish(function(mine, op=op, name="mixed"))
            assert len(found) == len(expected)
            assert all(same_bits(one, other) for one, other in zip(found, expected))
            in_place = function.__name__.endswith("_")
            assert (found is mine) == in_place
            assert all(same_bits(a, b) for a, b in zip(mine, expected if in_place else everyone[hvd.rank()]))


@on_ranks(2, 3)
def test_gathers_and_scatters():
    mine = [np.full((hvd.rank() + i, 2), hvd.rank(), np.int16) for i in range(3)]
    for function in (hvd.grouped_allgather, hvd.grouped_allgather_async):
        for i, found in enumerate(finish(function(mine, name="g"))):
            assert found[:, 0].tolist() == [rank for rank in range(hvd.size()) for _ in range(rank + i)]
    everyone = [[array for array in one if array.ndim] for one in lists()]
    for function in (hvd.grouped_reducescatter, hvd.grouped_reducescatter_async):
        found = finish(function(everyone[hvd.rank()], op=hvd.Sum, name="s"))
        for one, parts in zip(found, zip(*everyone)):
            total = reduce(hvd.Sum, parts, parts[0].dtype)
            assert same_bits(one, scattered(total, hvd.size(), hvd.rank()))


@on_ranks(2, 3)
def test_groups_overlap_in_any_order():
    rng = np.random.default_rng(hvd.rank())
    for _ in range(10):
        handles = {}
        for i in rng.permutation(20):
            arrays = [np.full(1 + 100 * (i % 3), i + k) for k in range(i % 5 + 1)]
            handles[i] = hvd.grouped_allreduce_async(arrays, op=hvd.Sum, name=f"g{i}")
        for i in rng.permutation(20):
            found = hvd.synchronize(handles[i])
            assert [one[0] for one in found] == [hvd.size() * (i + k) for k in range(i % 5 + 1)]
    assert not request._pending


@on_ranks(2)
def test_nothing_of_a_group_is_done_before_all_ranks_have_all_of_it():
    if hvd.rank() == 0:
        arrays = [np.ones(3), np.ones(4)]
        handle = hvd.grouped_allreduce_async_(arrays, op=hvd.Sum, name="late")
        assert not hvd.poll(handle)
        hvd.barrier()
        hvd.barrier()
        assert hvd.synchronize(handle) is arrays
        assert hvd.synchronize(handle) is None
    else:
        hvd.barrier()
        hvd.grouped_allreduce([np.ones(3), np.ones(4)], op=hvd.Sum, name="late")
        hvd.barrier()


@on_ranks(2)
def test_one_bad_member_fails_the_group_and_the_engine_goes_on():
    arrays = [np.ones(3), np.ones(3 + hvd.rank()), np.ones(3)]
    for function in (hvd.grouped_allreduce, hvd.grouped_allreduce_async):
        with pytest.raises(hvd.HorovodInternalError, match="Mismatched ALLREDUCE tensor shapes"):
            finish(function(arrays, op=hvd.Sum, name="bad"))
    if hvd.rank() == 0:  # found on this rank alone: nothing is sent
        with pytest.raises(ValueError, match="complex"):
            hvd.grouped_allreduce([np.ones(3), np.ones(3, "complex64")], name="bad")
        with pytest.raises(ValueError, match="bool"):
            hvd.grouped_allreduce([np.ones(3), [True]], op=hvd.Sum, name="bad")
    found = hvd.grouped_allreduce([np.ones(3)] * 3, op=hvd.Sum, name="bad")
    assert [one.tolist() for one in found] == [[2, 2, 2]] * 3


@on_ranks(2)
def test_the_names_of_members():
    if hvd.rank() == 0:
        group = hvd.grouped_allreduce_async([[1.0], [2.0]], name="x")
        with pytest.raises(ValueError, match=r"same name as another.*grouped_allreduce\.x_1of2"):
            hvd.grouped_allreduce_async([[1.0], [2.0]], name="x")
        with pytest.raises(ValueError, match="a group of 3 tensors with the same name as another one, of 2, that is"):
            hvd.grouped_allreduce_async([[1.0], [2.0], [3.0]], name="x")
        other = hvd.grouped_allgather_async([[1.0], [2.0], [3.0]], name="x")
    hvd.barrier()
    if hvd.rank() == 1:
        other = hvd.grouped_allgather_async([[1.0], [2.0], [3.0]], name="x")
        group = hvd.grouped_allreduce_async([[1.0], [2.0]], name="x")
    assert (len(hvd.synchronize(group)), len(hvd.synchronize(other))) == (2, 3)
    assert len(hvd.grouped_allreduce([[1.0], [2.0], [3.0]], name="x")) == 3


@on_ranks(2, 3)
def test_groups_of_different_length_fail_on_every_rank():
    one, two = [np.ones(3)], [np.ones(3), np.ones(2)]
    for function in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
        for name in ("known", "known", "other", None):
            if name == "known":
                function(one, name=name)
                function(two, name=name)
            with pytest.raises(
                hvd.HorovodInternalError,
                match="Mismatched group lengths: One rank gave a group of 1, but another rank gave a group of 2: rank",
            ):
                function(one if hvd.rank() == 0 else two, name=name)
    assert hvd.allreduce(1, op=hvd.Sum) == hvd.size()


@on_ranks(3, sets=[[0, 2]])
def test_in_a_process_set():
    (pair,) = SETS
    if pair.included():
        found = hvd.grouped_allreduce([hvd.rank(), [1]], op=hvd.Sum, process_set=pair)
        assert [one.tolist() for one in found] == [2, [2]]
        assert hvd.grouped_allgather([[hvd.rank()]], process_set=pair)[0].tolist() == [0, 2]
    else:
        with pytest.raises(ValueError, match="Rank 1 is not a member"):
            hvd.grouped_allreduce([1], process_set=pair)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("function", ALL)
@pytest.mark.parametrize("empty", [[], ()])
def test_an_empty_list_is_returned_as_it_is(function, empty):
    result = function(empty)
    if isinstance(result, int):
        assert hvd.poll(result)
        handle, result = result, hvd.synchronize(result)
        assert hvd.synchronize(handle) is None
    assert result is empty


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("function", ALL)
@pytest.mark.parametrize("tensors", [np.ones(3), 1.0, "ab", None, {"a": 1}, iter([1])])
def test_what_is_no_list(function, tensors):
    kind = type(tensors).__name__
    with pytest.raises(TypeError, match=f"(?s){function.__name__}: tensors=.* is a {kind}: give a list of tensors"):
        function(tensors)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("function", ALL)
def test_wrong_arguments_name_the_member(function):
    with pytest.raises(ValueError, match=re.escape("tensors[1]: tensor has element type complex64")):
        function([np.ones(2), np.ones(2, "complex64")])
    with pytest.raises(TypeError, match=r"^process_set=None is no process set"):
        function([np.ones(2)], process_set=None)
    with pytest.raises(TypeError, match="name=5"):
        function([np.ones(2)], name=5)
    if "allgather" not in function.__name__:
        with pytest.raises(TypeError, match="op='Sum'"):
            function([np.ones(2)], op="Sum")
        with pytest.raises(ValueError, match="postscale_factor=nan"):
            function([np.ones(2)], postscale_factor=float("nan"))


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("function", [hvd.grouped_allreduce_, hvd.grouped_allreduce_async_])
def test_in_place_members(function):
    with pytest.raises(ValueError, match=re.escape("tensors[1]: ") + ".*works in place"):
        function([np.ones(2), [1.0]])
    both = np.ones(6)
    with pytest.raises(ValueError, match=re.escape("tensors[0] and tensors[2] share memory")):
        function([both[:4], np.ones(3), both[3:]])
    with pytest.raises(ValueError, match=re.escape("tensors[0] and tensors[1] share memory")):
        function([both, both])
    finish(function([both[:3], both[3:]]))


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("start", [hvd.grouped_allreduce_async, hvd.grouped_allgather_async])
def test_arrays_live_until_their_group_was_asked_for_or_the_engine_ends(start):
    asked, forgotten = np.ones(1000), np.ones(1000)
    seen = [weakref.ref(asked), weakref.ref(forgotten)]
    handle = start([asked])
    start([forgotten])
    del asked, forgotten
    gc.collect()
    assert all(reference() is not None for reference in seen)
    hvd.synchronize(handle)
    gc.collect()
    assert seen[0]() is None
    hvd.shutdown()
    gc.collect()
    assert seen[1]() is None


@pytest.mark.usefixtures("engine")
def test_compression():
    values = np.array([1.0, 1e-9, 3.3])
    found = hvd.grouped_allreduce([values, np.arange(3)], compression=hvd.Compression.fp16)
    assert same_bits(found[0], values.astype("f2").astype("f8"))
    assert found[1].dtype == np.int64
