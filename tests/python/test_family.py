# SPDX-License-Identifier: Apache-2.0
"""Programs that a rank starts are told that they have no place in the job, unless they have one of their own."""

import os
import subprocess
import sys

import horovod.numpy as hvd
import numpy as np
from ranks import on_ranks

CHILD = "import horovod.numpy as hvd; hvd.init(); print('in a job of', hvd.size())"


def child(env=None):
    return subprocess.run([sys.executable, "-c", CHILD], env=env, capture_output=True, text=True, check=False)


@on_ranks(2)
def test_a_child_that_takes_its_ranks_place_is_told_at_once():
    if hvd.rank() == 0:
        # It would wait for rank 1, which is here, until the start time-out.
        refused = child({**os.environ, "HOROVOD_START_TIMEOUT": "3600"})
        assert refused.returncode != 0
        assert f"this process was started by rank 0 (pid {os.getpid()}), which is in the job already" in refused.stderr
        alone = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_R")}
        alone.pop("HOROVOD_SIZE")
        assert child(alone).stdout == "in a job of 1\n"
    assert hvd.allreduce(np.ones(1), op=hvd.Sum)[0] == 2


@on_ranks(2)
def test_a_rank_that_has_left_may_be_replaced_by_a_program_that_it_starts():
    hvd.shutdown()
    outcome = child()
    assert outcome.stdout == "in a job of 2\n", outcome.stderr
    hvd.init()
