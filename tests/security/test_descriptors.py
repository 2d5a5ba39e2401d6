# SPDX-License-Identifier: Apache-2.0
"""A rank without file descriptors says so in a few lines, and does not fill the log with each attempt."""

import sys

import pytest
import spawn

# Ranks that take each other for ranks of other hosts connect by TCP. Rank 0 can open a few more files.
CODE = """
import os, resource, sys
rank = os.environ["HOROVOD_RANK"]
os.environ["HOROVOD_HOSTNAME"] = "host" + rank
import numpy as np, horovod.numpy as hvd
if rank == "0":
    limit = len(os.listdir("/proc/self/fd")) + int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
try:
    hvd.init()
    print("SUM", hvd.allreduce(np.ones(1), op=hvd.Sum)[0])
except Exception as error:
    print("ERROR", error)
"""


@pytest.mark.parametrize("more", [11, 12, 13])
def test_a_rank_without_descriptors(more):
    env = {"HOROVOD_START_TIMEOUT": "4"}
    first, *others = spawn.spawn([sys.executable, "-c", CODE, str(more)], 3, env=env, timeout=60)
    assert len(first.output.splitlines()) < 12, first.output
    if "SUM" in first.output:
        assert all("SUM 3.0" in result.output for result in (first, *others))
    else:
        assert "Too many open files (raise ulimit -n)" in first.output
