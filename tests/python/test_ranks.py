# SPDX-License-Identifier: Apache-2.0
"""Operations among several ranks of one machine."""

import itertools
import os
import pathlib
import sys
import tempfile
import threading
import time

import horovod.numpy as hvd
import ml_dtypes
import numpy as np
import pytest
from ranks import on_ranks
from reference import reduce, same_bits

SETS: list[hvd.ProcessSet] = []  # filled in on the ranks
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
INTEGERS = [np.dtype(name) for name in ("uint8", "int8", "uint16", "int16", "int32", "int64")]
FLOATS = [np.dtype(name) for name in ("float16", "float32", "float64")] + [BFLOAT16]
OPS = [hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product]
# Empty, fewer elements than ranks, eager, several chunks; odd, so that no slice is a whole number of vectors.
COUNTS = [0, 1, 3, 1000, 65537, 700_001]


def data(dtype, count, rank, seed=0):
    """The input of any rank, which every rank can make for itself."""
    rng = np.random.default_rng([seed, count, rank])
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    if dtype in INTEGERS:
        return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).copy()
    values = rng.standard_normal(count) * 10.0 ** rng.integers(-8, 4, count)
    for special in (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-310, 1e-42):
        values[rng.random(count) < 0.01] = special
    with np.errstate(all="ignore"):
        return values.astype(dtype)


def inputs(dtype, count, ranks=None):
    return [data(dtype, count, rank) for rank in (range(hvd.size()) if ranks is None else ranks)]


@on_ranks(2, 3, 4)
def test_who_is_who():
    assert hvd.rank() == int(os.environ["HOROVOD_RANK"])
    assert hvd.size() == int(os.environ["HOROVOD_SIZE"])
    assert hvd.local_rank() == hvd.rank()
    assert hvd.local_size() == hvd.size()
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    assert hvd.is_homogeneous()
    assert hvd.allgather([hvd.rank()]).tolist() == list(range(hvd.size()))


@on_ranks(2, 3, 4)
def test_allreduce_of_every_type_and_reduction_is_bit_equal_to_the_rank_order_reference():
    for dtype, count in itertools.product(INTEGERS + FLOATS, COUNTS):
        everyone = inputs(dtype, count)
        mine = everyone[hvd.rank()]
        for op in OPS:
            if count == COUNTS[-1] and op not in (hvd.Average, hvd.Min):
                continue  # the reference is slow
            expected = reduce(op, everyone, dtype)
            found = hvd.allreduce(mine, op=op, name=f"{dtype}.{count}.{op}")
            assert same_bits(found, expected), (dtype, count, op)


@on_ranks(2, 3)
def test_bool():
    for count in COUNTS:
        everyone = inputs(np.dtype(bool), count)
        for op in (hvd.Min, hvd.Max):
            assert same_bits(hvd.allreduce(everyone[hvd.rank()], op=op), reduce(op, everyone, np.dtype(bool)))
    with pytest.raises(ValueError, match="bool"):
        hvd.allreduce([True], op=hvd.Sum)


@on_ranks(3)
def test_scale_factors():
    for dtype in INTEGERS + FLOATS:
        everyone = inputs(dtype, 1000)
        for op, pre, post in [
            (hvd.Sum, 0.5, 1.0),
            (hvd.Sum, 1.0, -3.0),
            (hvd.Average, 2.0, 0.25),
            (hvd.Max, 0.1, 10.0),
        ]:
            expected = reduce(op, everyone, dtype, pre, post)
            found = hvd.allreduce(everyone[hvd.rank()], op=op, prescale_factor=pre, postscale_factor=post)
            assert same_bits(found, expected), (dtype, op, pre, post)


@on_ranks(2, 4)
def test_forms_of_allreduce_agree():
    for count in COUNTS:
        everyone = inputs(np.dtype(np.float32), count)
        expected = reduce(hvd.Sum, everyone, np.dtype(np.float32))
        mine = everyone[hvd.rank()]
        arena = hvd.empty(count, np.float32)
        arena[:] = mine
        assert same_bits(hvd.allreduce(arena, op=hvd.Sum, name="arena in"), expected)
        assert same_bits(hvd.allreduce_(arena, op=hvd.Sum, name="arena"), expected)
        private = mine.copy()
        assert hvd.allreduce_(private, op=hvd.Sum, name="private") is private
        assert same_bits(private, expected)
        # Who uses which memory need not be the same everywhere.
        mixed = hvd.empty(count, np.float32) if hvd.rank() % 2 else np.empty(count, np.float32)
        mixed[:] = mine
        assert same_bits(hvd.synchronize(hvd.allreduce_async_(mixed, op=hvd.Sum, name="mixed")), expected)
        assert same_bits(mine, data(np.dtype(np.float32), count, hvd.rank()))


@on_ranks(2, 3, 4)
def test_allgather_with_rows_that_differ_by_rank():
    for dtype in [*INTEGERS, *FLOATS, np.dtype(bool)]:
        for rows in ([1, 1, 1, 1], [0, 3, 2, 5], [4, 0, 0, 0], [0, 0, 0, 0], [5000, 1, 0, 30000]):
            parts = [data(dtype, rows[rank] * 3, rank).reshape(rows[rank], 3) for rank in range(hvd.size())]
            found = hvd.allgather(parts[hvd.rank()], name=f"rows.{dtype}")
            assert same_bits(found, np.concatenate(parts)), (dtype, rows)
    found = hvd.synchronize(hvd.allgather_async(np.full((hvd.rank(), 2, 2), hvd.rank())))
    assert found.shape == (sum(range(hvd.size())), 2, 2)


@on_ranks(2, 3, 4)
def test_broadcast_from_every_root():
    for dtype, count in itertools.product([*INTEGERS, *FLOATS, np.dtype(bool)], (0, 1, 1000, 300_001)):
        for root in range(hvd.size()):
            expected = data(dtype, count, root)
            mine = data(dtype, count, hvd.rank())
            assert hvd.broadcast(mine, root, name="out").tobytes() == expected.tobytes()
            assert mine.tobytes() == data(dtype, count, hvd.rank()).tobytes()
            assert hvd.broadcast_(mine, root, name="in") is mine
            assert mine.tobytes() == expected.tobytes()
            handle = hvd.broadcast_async(data(dtype, count, hvd.rank()), root)
            assert hvd.synchronize(handle).tobytes() == expected.tobytes()


@on_ranks(2, 3)
def test_submission_order_may_differ_by_rank():
    rng = np.random.default_rng(hvd.rank())
    for _ in range(20):
        handles = {}
        for i in rng.permutation(50):
            handles[i] = hvd.allreduce_async(np.full(int(i) * 37 + 1, i + hvd.rank()), op=hvd.Sum, name=f"t{i}")
        for i in rng.permutation(50):
            expected = hvd.size() * i + sum(range(hvd.size()))
            assert (hvd.synchronize(handles[i]) == expected).all()


@on_ranks(2)
def test_poll_is_false_until_the_peer_submits():
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(np.ones(4), op=hvd.Sum, name="late")
        assert not hvd.poll(handle)
        hvd.barrier()
        deadline = time.monotonic() + 20
        while not hvd.poll(handle):
            assert time.monotonic() < deadline
        assert (hvd.synchronize(handle) == 2).all()
    else:
        hvd.barrier()
        hvd.allreduce(np.ones(4), op=hvd.Sum, name="late")


@on_ranks(3, 4, sets=[[0, 1], [1, 2], [2, 0], [3]])
def test_overlapping_sets_in_a_different_order_on_each_rank():
    rng = np.random.default_rng(hvd.rank())
    mine = [one for one in SETS if one.included()]
    for step in range(50):
        handles = {}
        for index in rng.permutation(len(mine)):
            one = mine[index]
            array = np.full(1 + 5000 * (step % 3), hvd.rank() + step)
            handles[one] = hvd.allreduce_async(array, op=hvd.Sum, name="overlap", process_set=one)
        for one, handle in handles.items():
            assert (hvd.synchronize(handle) == sum(one.ranks) + step * len(one.ranks)).all()


@on_ranks(2)
def test_repeated_names_with_other_arrays_types_shapes_and_scales():
    calls = [hvd.allreduce, hvd.allreduce_, hvd.allreduce_async, hvd.allreduce_async_]
    kinds = list(itertools.product(("f4", "i8"), ((3,), (1, 3), (3, 1)), (None, hvd.Max), (1.0, 2.0)))
    for step in range(4):
        for dtype, shape, op, scale in kinds:
            for call in calls:
                array = np.full(shape, 2 * hvd.rank() + 2 * step, dtype)
                result = call(array, name="same", op=op, prescale_factor=scale)
                result = hvd.synchronize(result) if "async" in call.__name__ else result
                assert result.dtype == array.dtype
                assert result.shape == shape
                assert (result == scale * (2 * step + (1 if op is None else 2))).all()
                assert (result is array) == call.__name__.endswith("_")
                assert call.__name__.endswith("_") or (array == 2 * hvd.rank() + 2 * step).all()


@on_ranks(3, sets=[[0, 2], [1]])
def test_process_sets():
    pair, single = SETS
    assert str(pair) == "ProcessSet(process_set_id=1, ranks=[0, 2], mpi_comm=None)"
    assert hvd._basics._get_process_set_ids_and_ranks() == {0: [0, 1, 2], 1: [0, 2], 2: [1]}
    assert (pair.size(), single.size()) == (2, 1)
    assert pair.included() == (hvd.rank() != 1)
    if pair.included():
        assert pair.rank() == hvd.rank() // 2
        assert hvd.allreduce(float(hvd.rank()), op=hvd.Average, process_set=pair) == 1.0
        assert hvd.allgather([hvd.rank()], process_set=pair).tolist() == [0, 2]
        assert hvd.broadcast([hvd.rank()], 2, process_set=pair).tolist() == [2]
        assert hvd.broadcast_object(hvd.rank(), 2, process_set=pair) == 2
        assert hvd.allgather_object(hvd.rank(), process_set=pair) == [0, 2]
        hvd.barrier(process_set=pair)
        with pytest.raises(ValueError, match="invalid root rank 1"):
            hvd.broadcast([1.0], 1, process_set=pair)
    else:
        with pytest.raises(ValueError, match="not a member"):
            pair.rank()
        with pytest.raises(ValueError, match="Rank 1 is not a member"):
            hvd.allreduce(1.0, process_set=pair)
        assert hvd.allreduce(5.0, process_set=single) == 5.0
    # Unnamed operations stay in step although the ranks made different numbers of them on the sets.
    assert hvd.allreduce(1.0, op=hvd.Sum) == 3.0


@on_ranks(2)
def test_broadcast_parameters():
    params = {name: np.full(3, hvd.rank() + i) for i, name in enumerate("cab")}
    hvd.broadcast_parameters(params, root_rank=1)
    assert [params[name][0] for name in "cab"] == [1, 2, 3]


@on_ranks(2, 3)
def test_many_small_ones_are_fused_and_right():
    for _ in range(5):
        handles = [hvd.allreduce_async_(np.full(i % 7, i), op=hvd.Sum, name=f"g{i}") for i in range(300)]
        for i, handle in enumerate(handles):
            assert (hvd.synchronize(handle) == i * hvd.size()).all()


@on_ranks(2, env={"HOROVOD_CACHE_CAPACITY": "4"})
def test_more_names_than_the_cache_holds():
    for step in range(60):
        assert hvd.allreduce(step, op=hvd.Sum, name=f"n{step % 7}") == 2 * step


@on_ranks(2, env={"HOROVOD_FUSION_THRESHOLD": "0", "HOROVOD_CACHE_CAPACITY": "0"})
def test_without_fusion_and_cache():
    handles = [hvd.allreduce_async(np.full(100, i), op=hvd.Sum, name=f"n{i}") for i in range(50)]
    for i, handle in enumerate(handles):
        assert (hvd.synchronize(handle) == 2 * i).all()


@on_ranks(2, 3, env={"HOROVOD_DISABLE_SHM": "1"})
def test_over_tcp():
    for count in COUNTS:
        everyone = inputs(np.dtype(np.float32), count)
        found = hvd.allreduce(everyone[hvd.rank()], op=hvd.Sum, name="tcp")
        assert same_bits(found, reduce(hvd.Sum, everyone, np.dtype(np.float32)))
        assert hvd.broadcast(everyone[hvd.rank()], 1).tobytes() == everyone[1].tobytes()
        assert same_bits(hvd.allgather(everyone[hvd.rank()]), np.concatenate(everyone))


@on_ranks(2, 3, env={"HOROVOD_DISABLE_SHM": "1"})
def test_over_tcp_with_a_last_chunk_that_is_short():
    for tail in (64, 4096, 20_000):
        array = np.ones(hvd.size() * ((1 << 20) + tail), np.int8)
        assert (hvd.allreduce(array, op=hvd.Sum, name="tail") == hvd.size()).all()


@on_ranks(2)
def test_threads():
    failures = []

    def work(thread):
        try:
            for i in range(100):
                assert hvd.allreduce(i, op=hvd.Sum, name=f"thread{thread}") == 2 * i
        except BaseException as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@on_ranks(2, env={"HOROVOD_OP_TIMEOUT_SECONDS": "0.5"})
def test_an_operation_that_a_rank_never_submits_times_out():
    # Rank 1 must not leave meanwhile, and nothing of the engine may keep it: a file tells it when to go.
    seen = pathlib.Path(tempfile.gettempdir()) / f"hvd-test-{os.environ['HOROVOD_RENDEZVOUS_ADDR']}"
    if hvd.rank() == 0:
        try:
            with pytest.raises(TimeoutError, match="rank 1") as caught:
                hvd.allreduce(np.ones(3), name="alone")
            assert isinstance(caught.value, hvd.HorovodInternalError)
        finally:
            seen.touch()
        return
    deadline = time.monotonic() + 20
    while not seen.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    seen.unlink()


@on_ranks(2)
def test_init_and_shutdown_may_be_repeated():
    for generation in range(1, 10):
        for _ in range(3):  # the engine knows a repeated call, but only until it ends
            assert (hvd.allreduce(np.ones(2), op=hvd.Sum, name="x") == 2).all()
        hvd.shutdown()
        os.environ["HOROVOD_GENERATION"] = str(generation)
        hvd.init()


@on_ranks(2)
def test_a_rank_that_leaves_fails_what_waits_for_it():
    hvd.barrier()
    if hvd.rank() == 1:
        sys.stdout.flush()
        hvd.shutdown()
        return
    with pytest.raises(hvd.HorovodInternalError, match="Horovod has been shut down") as caught:
        hvd.allreduce(np.ones(3))
    assert "rank 1" in str(caught.value)


@on_ranks(3)
def test_every_output_may_be_kept():
    kept = [hvd.allgather(np.full(10_000, step)) for step in range(200)]
    for step, array in enumerate(kept):
        assert (array == step).all()
