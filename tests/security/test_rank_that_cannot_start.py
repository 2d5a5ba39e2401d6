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
(here / rank).touch()
# Without a launcher, a rank that comes when the others have gone cannot be told.
while rank == unable and len(list(here.iterdir())) < 3:
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
