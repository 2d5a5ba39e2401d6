# SPDX-License-Identifier: Apache-2.0
"""A rank that fails before it joins the others is named by all of them, long before the start time-out."""

import sys

import pytest
import spawn

CODE = """
import os, pathlib, sys, time
rank, unable, here = os.environ["HOROVOD_RANK"], sys.argv[1], pathlib.Path(sys.argv[2])
if rank == unable:
    os.environ["HOROVOD_ALGORITHMS"] = "nonsense"
import horovod.numpy as hvd

PORT = os.environ["HOROVOD_RENDEZVOUS_ADDR"].rpartition(":")[2]
CONNECTED = "03"

def connections():
    # Rank 0's store serves ranks of its machine at a unix socket that is named after the port.
    entries = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()]
    return sum(entry[5] == CONNECTED and entry[-1].endswith("-" + PORT) for entry in entries)

def sleeps(other):
    tasks = pathlib.Path("/proc", other.read_text(), "task").iterdir()
    return not any((task / "syscall").read_text().startswith("running") for task in tasks)

(here / f"{rank}.new").write_text(str(os.getpid()))
(here / f"{rank}.new").rename(here / rank)
# Without a launcher, a rank that comes when the others have gone cannot be told.
others = [here / str(other) for other in range(3) if str(other) != rank]
while rank == unable and not all(other.exists() for other in others):
    time.sleep(0.01)
# Rank 0 is looked at twice, because what it sends may wake the other up in between.
while rank == unable == "1" and not (connections() == 2 and all(sleeps(other) for other in [*others, others[0]])):
    time.sleep(0.01)
try:
    hvd.init()
    print("STARTED")
except Exception as error:
    print("ERROR", error)
"""


@pytest.mark.parametrize("unable", [0, 1])
def test_the_others_learn_why(unable, tmp_path):
    env = {"HOROVOD_START_TIMEOUT": "600"}
    results = spawn.spawn([sys.executable, "-c", CODE, str(unable), str(tmp_path)], 3, env=env, timeout=60)
    for result in results:
        assert "ERROR" in result.output, (result.rank, result.output)
        assert "HOROVOD_ALGORITHMS" in result.output
        if result.rank != unable:
            assert f"rank {unable}" in result.output
