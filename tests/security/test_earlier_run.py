# SPDX-License-Identifier: Apache-2.0
"""Ranks started by hand have no name of their run: one that still waits from an earlier run does not join silently."""

import os
import subprocess
import sys
import tempfile

import spawn

# The kernel counts start times in hundredths of a second, so a rank speaks when its imports have taken some of them.
RANK = """
import os, sys
import numpy as np, horovod.numpy as hvd
print(os.getpid(), flush=True)
hvd.init()
hvd.allreduce(np.ones(1), name="sum")
"""

# What starts a new run: a process of its own, as a script would be.
STARTER = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"


def test_a_rank_of_an_earlier_run_is_named():
    env = dict(os.environ, HOROVOD_SIZE="2", HOROVOD_RENDEZVOUS_ADDR=f"127.0.0.1:{spawn.free_port()}")
    with tempfile.TemporaryFile("w+") as said:
        old = subprocess.Popen(
            [*spawn.DIES_WITH_US, sys.executable, "-c", RANK], env=dict(env, HOROVOD_RANK="1"), stdout=subprocess.PIPE
        )
        with old:
            pid = int(old.stdout.readline())
            command = [*spawn.DIES_WITH_US, sys.executable, "-c", STARTER, sys.executable, "-c", RANK]
            new = subprocess.run(command, env=dict(env, HOROVOD_RANK="0"), stderr=said, timeout=60, check=False)
        said.seek(0)
        text = said.read()
    assert (old.returncode, new.returncode) == (0, 0), text
    assert f"rank 1 (pid {pid}) was started before the process that started rank 0" in text


def test_ranks_of_one_run_in_any_order_are_not():
    for output in spawn.run([sys.executable, "-c", RANK], 3):
        assert "was started before" not in output
