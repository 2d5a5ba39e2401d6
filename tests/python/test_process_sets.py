# SPDX-License-Identifier: Apache-2.0
"""Process sets as objects, and as an argument of init and of operations."""

import horovod.numpy as hvd
import numpy as np
import pytest


def test_process_set_objects():
    some = hvd.ProcessSet([3, 1, 2])
    assert str(some) == "ProcessSet(process_set_id=None, ranks=[1, 2, 3], mpi_comm=None)"
    assert (some.size(), some.rank(), some.included()) == (None, None, None)
    for bad in ([1.5], ["a"], [True], 3):
        with pytest.raises(ValueError):
            hvd.ProcessSet(bad)
    assert hvd.ProcessSet(np.arange(2)).ranks == [0, 1]
    assert hvd.global_process_set.process_set_id == 0
    with pytest.raises(ValueError, match=r"hvd\.init\(\)"):
        hvd.add_process_set([0])
    assert hvd.remove_process_set(hvd.global_process_set) is False
    assert hvd.remove_process_set(some) is False


def test_process_sets_given_to_init():
    with pytest.raises(ValueError, match="same ranks"):
        hvd.init(process_sets=[hvd.ProcessSet([0]), hvd.ProcessSet([0])])
    with pytest.raises(ValueError):
        hvd.init(process_sets=[hvd.ProcessSet([0, 1])])
    with pytest.raises(ValueError, match="static"):
        hvd.init(process_sets="static")
    with pytest.raises(ValueError, match="comm"):
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
