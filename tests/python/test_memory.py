# SPDX-License-Identifier: Apache-2.0
"""Memory of the library: how long it lives, and that it comes back."""

import gc

import horovod.numpy as hvd
import ml_dtypes
import numpy as np
import pytest


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


def test_a_limit_ends_with_the_init_that_it_was_given_to(monkeypatch):
    monkeypatch.setenv("HOROVOD_ARENA_BYTES", str(64 << 20))
    hvd.init()
    with pytest.raises(MemoryError, match="HOROVOD_ARENA_BYTES"):
        hvd.empty(100 << 20, np.uint8)
    hvd.shutdown()
    monkeypatch.delenv("HOROVOD_ARENA_BYTES")
    hvd.init()
    hvd.empty(100 << 20, np.uint8)
    hvd.shutdown()


@pytest.mark.usefixtures("engine")
def test_results_outlive_shutdown_and_each_other():
    arrays = [hvd.allgather(np.full(1000, i)) for i in range(50)]
    hvd.shutdown()
    gc.collect()
    for i, array in enumerate(arrays):
        assert (array == i).all()


@pytest.mark.parametrize(
    ("error", "arguments", "text"),
    [
        (ValueError, (-1,), "shape=-1"),
        (TypeError, (2.5,), "shape=2.5"),
        (TypeError, (None,), "shape=None"),
        (ValueError, ((2**33, 2**30),), "shape=.8589934592, 1073741824."),
        (ValueError, (3, ">f8"), "dtype is >f8, which is not supported"),
        (TypeError, (3, "nonsense"), "dtype='nonsense'"),
        (MemoryError, (2**50,), "HOROVOD_ARENA_BYTES"),
    ],
)
def test_what_empty_does_not_take(error, arguments, text):
    with pytest.raises(error, match=text):
        hvd.empty(*arguments)
