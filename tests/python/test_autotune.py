# SPDX-License-Identifier: Apache-2.0
"""horovodrun --autotune: what the program sees of it, and the file that it leaves."""

import csv
import sys

import pytest
from launching import horovodrun

TRAINING = """
import numpy as np, horovod.numpy as hvd
hvd.init()
for step in range(40):
    gradients = [np.full(5000, step + i + hvd.rank(), np.float32) for i in range(4)]
    handles = [hvd.allreduce_async(g, name=f"g{i}", op=hvd.Sum) for i, g in enumerate(gradients)]
    for i, handle in enumerate(handles):
        assert (hvd.synchronize(handle) == 2 * (step + i) + 1).all()
print("threshold", hvd.counters()["fusion"]["threshold_bytes"])
"""
QUICK = ["--autotune-warmup-samples", "0", "--autotune-steps-per-sample", "1", "--autotune-bayes-opt-max-samples", "7"]


@pytest.mark.row("k7")
@pytest.mark.parametrize("given", [[], ["--fusion-threshold-mb", "32"]])
def test_the_last_row_is_what_the_job_goes_on_with(given, tmp_path):
    log = tmp_path / "autotune.csv"
    tuning = ["--autotune", "--autotune-log-file", log, *QUICK, "--log-level", "info", "-x", "HOROVOD_DISABLE_SHM=1"]
    result = horovodrun("-np", "2", *tuning, *given, sys.executable, "-c", TRAINING)
    assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader(log.open()))
    best = round(float(rows[-1]["tensor_fusion_threshold"]) * 2**20)
    assert f"[0]<stdout>:threshold {best}\n" in result.stdout
    assert 2 <= len(rows) <= 8
    assert all(float(row["score"]) > 0 for row in rows)
    assert {row["cycle_time_ms"] for row in rows} == {"0"}
    assert result.stdout.count("Autotune ended after") == 1, "rank 0 says it, once"
    if given:
        assert best == 32 * 2**20
        assert len(rows) == 2, "it was measured, and nothing was tried"
