# SPDX-License-Identifier: Apache-2.0
"""A large allreduce puts no more bytes on the way than any algorithm must: 2 (n-1)/n of the tensor per rank or host."""

import os

import horovod.numpy as hvd
import numpy as np
import pytest
from ranks import on_ranks

ELEMENTS = (4 << 20) + 3  # does not divide evenly
BYTES = 4 * ELEMENTS
HEADERS = 1.01  # and the agreement

TCP = {"HOROVOD_DISABLE_SHM": "1", "HOROVOD_LOG_LEVEL": "error"}


def moved_by_tcp(way):
    return sum(peer[way].get("tcp", 0) for peer in hvd.counters()["peers"].values())


def assert_allreduce_moves(least):
    for _ in range(2):  # the first one of its name is agreed on in full, the second by its mark
        before = {way: moved_by_tcp(way) for way in ("sent_bytes", "received_bytes")}
        hvd.barrier()  # nobody begins before all have read
        total = hvd.allreduce(np.full(ELEMENTS, hvd.rank() + 1, np.float32), op=hvd.Sum, name="large")
        hvd.barrier()  # all that was sent has come
        for way, bytes_before in before.items():
            assert least * 0.999 <= moved_by_tcp(way) - bytes_before <= least * HEADERS, way
        assert (total == sum(range(1, hvd.size() + 1))).all()


@pytest.mark.row("f9")
@on_ranks(2, 3, 4, env=TCP)
def test_between_ranks():
    assert_allreduce_moves(2 * (hvd.size() - 1) / hvd.size() * BYTES)


@pytest.mark.row("f9")
@on_ranks(4, env={"HOROVOD_LOG_LEVEL": "error"})
def test_between_hosts_with_several_ranks():
    hvd.shutdown()
    os.environ["HOROVOD_HOSTNAME"] = "left" if os.environ["HOROVOD_RANK"] in "01" else "right"
    hvd.init()
    hosts, ranks_per_host = hvd.cross_size(), hvd.local_size()
    assert (hosts, ranks_per_host) == (2, 2)
    # Each host sends the least that it must, and its ranks share the work.
    assert_allreduce_moves(2 * (hosts - 1) / hosts * BYTES / ranks_per_host)
