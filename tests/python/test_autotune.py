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


def tuning(log, *more):
    """Return the flags of a job that tunes quickly, says what it finds and fuses what it can."""
    return ["--autotune", "--autotune-log-file", log, *QUICK, "--log-level", "info", *more]


def rows_of(log):
    """Return the rows with Horovod's columns and those of the file beside; check Horovod's."""
    rows = list(csv.DictReader(log.open()))
    assert list(rows[0]) == [
        *("hierarchical_allreduce", "hierarchical_allgather", "torus_allreduce", "cache_enabled", "cycle_time_ms"),
        *("tensor_fusion_threshold", "score"),
    ]
    assert all(float(row["score"]) > 0 for row in rows)
    assert {row["cycle_time_ms"] for row in rows} == {"0"}
    beside = list(csv.DictReader(log.with_name(log.name + ".values").open()))
    assert [row["score"] for row in beside] == [row["score"] for row in rows]
    return [row | more for row, more in zip(rows, beside)]


@pytest.mark.row("k7")
@pytest.mark.parametrize("given", [[], ["--fusion-threshold-mb", "32"]])
def test_the_last_row_is_what_the_job_goes_on_with(given, tmp_path):
    log = tmp_path / "autotune.csv"
    flags = tuning(log, "-x", "HOROVOD_DISABLE_SHM=1", "-x", "HOROVOD_CHUNK_BYTES=65536", "-x", "HOROVOD_SPIN_US=100")
    result = horovodrun("-np", "2", *flags, *given, sys.executable, "-c", TRAINING)
    assert result.returncode == 0, result.stderr
    rows = rows_of(log)
    best = round(float(rows[-1]["tensor_fusion_threshold"]) * 2**20)
    assert f"[0]<stdout>:threshold {best}\n" in result.stdout
    assert 2 <= len(rows) <= 8
    assert {row["spin_us"] for row in rows} == {"100"}, "it was given"
    assert result.stdout.count("Autotune ended after") == 1, "rank 0 says it, once"
    if given:
        assert best == 32 * 2**20
        assert len(rows) == 2, "it was measured, and nothing was tried"


@pytest.mark.row("k7")
def test_on_one_host_all_but_the_threshold_is_tried(tmp_path):
    log = tmp_path / "autotune.csv"
    flags = tuning(log, "--autotune-bayes-opt-max-samples", "20", "--autotune-continue")
    training = TRAINING.replace("range(40)", "range(80)")
    result = horovodrun("-np", "2", *flags, "--fusion-threshold-mb", "16", sys.executable, "-c", training)
    assert result.returncode == 0, result.stderr
    rows = rows_of(log)
    assert {row["tensor_fusion_threshold"] for row in rows} == {"16"}
    assert {row["chunk_percent"] for row in rows} == {"25", "50", "100", "200"}
    assert {row["eager_limit"] for row in rows} == {"4096", "16384", "65536"}
    ended = [line for line in result.stdout.splitlines() if "Autotune ended after" in line]
    assert len(ended) == 1
    assert "bytes per microsecond" in ended[0]
    if rows[-1]["chunk_percent"] != "100":
        assert "HOROVOD_CHUNK_BYTES=" in ended[0]
    if rows[-1]["eager_limit"] != "65536":
        assert "HOROVOD_EAGER_LIMIT=" in ended[0]


DYING = """
import os, signal
import numpy as np, horovod.numpy as hvd
hvd.init()
try:
    for step in range(1000):
        if (hvd.rank(), step) == (VICTIM, 23): os.kill(os.getpid(), signal.SIGKILL)
        for size in (100, 5000, 100000):
            hvd.allreduce(np.ones(size, np.float32), name=f"g{size}")
except hvd.HorovodInternalError as error:
    print("told:", error, flush=True)
"""


@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize("shm", ["0", "1"])
def test_a_rank_that_is_killed_meanwhile_is_named(victim, shm, tmp_path):
    flags = tuning(tmp_path / "autotune.csv", "-x", f"HOROVOD_DISABLE_SHM={shm}")
    script = DYING.replace("VICTIM", str(victim))
    result = horovodrun("-np", "3", *flags, sys.executable, "-c", script)
    assert result.returncode != 0
    told = [line for line in result.stdout.splitlines() if "told:" in line]
    assert len(told) == 2, result.stdout + result.stderr
    assert all(f"rank {victim}" in line for line in told)
