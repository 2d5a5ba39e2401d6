# SPDX-License-Identifier: Apache-2.0
"""Objects of any kind, from one rank to all and from all to all."""

import threading

import horovod.numpy as hvd
import numpy as np
import pytest
from ranks import on_ranks

SETS: list[hvd.ProcessSet] = []  # filled in on the ranks


@on_ranks(2, 3)
def test_objects():
    for root in range(hvd.size()):
        value = {"from": root, "blob": np.arange(root * 1000)} if hvd.rank() == root else None
        found = hvd.broadcast_object(value, root)
        assert found["from"] == root
        assert len(found["blob"]) == root * 1000
    gathered = hvd.allgather_object("x" * hvd.rank() * 100_000)
    assert [len(one) for one in gathered] == [100_000 * rank for rank in range(hvd.size())]
    assert hvd.allgather_object(lambda: 3)[-1]() == 3


@on_ranks(3, sets=[[0, 2]], env={"HOROVOD_OP_TIMEOUT_SECONDS": "10"})
def test_an_object_that_cannot_be_pickled_is_an_error_on_all_ranks():
    lock = threading.Lock()
    for _ in range(2):
        with pytest.raises(TypeError, match=r"broadcast_object: rank 1's object cannot be pickled: .*lock"):
            hvd.broadcast_object(lock if hvd.rank() == 1 else {"epoch": 3}, root_rank=1)
        with pytest.raises(TypeError, match=r"allgather_object: rank 2's object cannot be pickled: .*lock"):
            hvd.allgather_object([lock] if hvd.rank() == 2 else {"epoch": 3})
        # What others than the root give to a broadcast does not matter.
        assert hvd.broadcast_object(lock if hvd.rank() != 1 else {"epoch": 3}, root_rank=1) == {"epoch": 3}
    pair = SETS[0]
    if pair.included():
        with pytest.raises(TypeError, match="rank 2's object"):
            hvd.allgather_object(lock if hvd.rank() == 2 else 0, process_set=pair)
    assert hvd.allgather_object(hvd.rank()) == [0, 1, 2]
