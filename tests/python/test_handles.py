# SPDX-License-Identifier: Apache-2.0
"""Handles: what poll and synchronize say of them, and what becomes of those that are never asked for."""

import gc
import os
import subprocess
import sys
import weakref

import horovod.numpy as hvd
import numpy as np
import pytest
from horovod.common.exceptions import HorovodInternalError


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


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("start", [hvd.allreduce_async, hvd.allgather_async])
@pytest.mark.usefixtures("no_engine")
def test_a_handle_of_an_earlier_life_fails(start, again):
    hvd.init()
    handle = start([1.0])
    hvd.shutdown()
    if again:
        hvd.init()
    assert hvd.poll(handle)
    with pytest.raises(HorovodInternalError, match=r"Horovod has been shut down: hvd\.shutdown\(\) was called"):
        hvd.synchronize(handle)
    assert hvd.synchronize(handle) is None
    hvd.shutdown()


@pytest.mark.parametrize("start", [hvd.allreduce_async, hvd.allreduce_async_, hvd.allgather_async])
@pytest.mark.usefixtures("engine")
def test_arrays_live_until_their_operation_was_asked_for_or_the_engine_ends(start):
    asked, forgotten = np.ones(1000), np.ones(1000)
    seen = [weakref.ref(asked), weakref.ref(forgotten)]
    handle = start(asked)
    start(forgotten)
    del asked, forgotten
    gc.collect()
    assert all(reference() is not None for reference in seen)
    hvd.synchronize(handle)
    gc.collect()
    assert seen[0]() is None
    assert seen[1]() is not None
    hvd.shutdown()
    gc.collect()
    assert seen[1]() is None


def test_outputs_that_nobody_asked_for_are_given_back():
    code = """
import numpy as np, horovod.numpy as hvd
for _ in range(20):
    hvd.init()
    handle = hvd.allgather_async(np.ones(1 << 20))
    while not hvd.poll(handle):
        pass
    hvd.shutdown()
hvd.empty(6 << 20)
"""
    env = dict(os.environ, HOROVOD_ARENA_BYTES=str(64 << 20))
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
