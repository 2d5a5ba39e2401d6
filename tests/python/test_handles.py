# SPDX-License-Identifier: Apache-2.0
"""Handles: what poll and synchronize say of them, and what becomes of those that are never asked for."""

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
