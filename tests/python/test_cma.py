# SPDX-License-Identifier: Apache-2.0
"""Large private data that ranks read out of each other's memory, and what may forbid that."""

import os
import sys

import launching
import pytest

PROGRAM = """
import ctypes, sys
import numpy as np, horovod.numpy as hvd
PR_SET_DUMPABLE = 4
when = sys.argv[1]
if when == "before":
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
hvd.init()
rank, size = hvd.rank(), hvd.size()
for step in range(40):
    if when == "later" and (step, rank) == (20, 1):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    mine = np.full((50_000 + rank, 2), step * size + rank, np.float64)
    everybody = hvd.allgather(mine, name="everybody")
    expected = np.concatenate([np.full((50_000 + r, 2), step * size + r, np.float64) for r in range(size)])
    assert (everybody == expected).all()
    assert (hvd.broadcast(mine[:50_000], root_rank=step % size, name="one") == step * size + step % size).all()
    swapped = hvd.alltoall(np.full(60_000 * size, rank, np.float32), name="swapped")
    assert (swapped.reshape(size, -1) == np.arange(size)[:, None]).all()
print("fine")
"""


# Root may read whatever it wants, so this right is given away.
def unprivileged(*words):
    """Run horovodrun as a user whom the kernel can refuse something."""
    prefix = ["setpriv", "--bounding-set=-sys_ptrace"] if os.geteuid() == 0 else []
    return launching.run([*prefix, launching.HOROVODRUN, *words], launching.clean_environment())


@pytest.mark.parametrize("algorithms", ["", "any:shm:cma=1..", "any:shm:cma=none"])
@pytest.mark.parametrize("when", ["never", "before", "later"])
def test_a_rank_that_must_not_be_read_is_not(when, algorithms):
    result = unprivileged("-np", "3", "-x", f"HOROVOD_ALGORITHMS={algorithms}", sys.executable, "-c", PROGRAM, when)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("fine") == 3
