# SPDX-License-Identifier: Apache-2.0
"""Three common mistakes in real programs under `fit`, each found from what the tools print and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest
from launching import horovodrun

PROGRAM = """
import sys
import horovod.tensorflow.keras as hvd
import tensorflow as tf

mistake = sys.argv[1]
hvd.init()
tf.keras.utils.set_random_seed(hvd.rank())
model = tf.keras.Sequential([
    tf.keras.Input([4]),
    tf.keras.layers.Dense(8, name="small"),
    tf.keras.layers.Dense(500_000 if mistake == "layer" else 8, name="wide"),
    tf.keras.layers.Dense(1, name="head"),
])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1e-6)), "mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
rows = 40 if mistake == "data" and hvd.rank() == 1 else 60
data = tf.data.Dataset.from_tensor_slices((tf.ones([rows, 4]), tf.ones([rows, 1]))).batch(4)
model.fit(data, epochs=1, verbose=0, callbacks=callbacks[mistake == "broadcast" :])
"""


@pytest.fixture
def train(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    return lambda mistake, env: horovodrun("-np", 2, sys.executable, script, mistake, env=env)


def test_a_forgotten_broadcast(train):
    result = train("broadcast", {})
    assert result.returncode == 1
    warning, failure = result.stderr.split("horovodrun: the job failed: ")
    for said in (warning, failure):
        assert "small/kernel' (1 of 6) differs between the ranks" in said
    assert "Broadcast the variables from rank 0 after the first step" in failure.split("suggestion:")[1]


def test_a_slow_layer(train, tmp_path):
    timeline = tmp_path / "t.json"
    result = train("layer", {"HOROVOD_TIMELINE": str(timeline), "HOROVOD_TIMELINE_ALL_RANKS": "1"})
    assert result.returncode == 0, result.stderr
    command = [sys.executable, "-m", "horovod.timeline", "report", timeline, tmp_path / "t.1.json"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    slowest = said[said.index("slowest operations") :].splitlines()[1]
    assert "/wide/kernel) " in slowest, said


def test_an_uneven_data_set(train):
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3"}
    result = train("data", env)
    assert result.returncode != 0
    assert "different numbers of batches: give all the same (steps_per_epoch, drop_remainder=True)" in result.stderr
    assert "Give all ranks the same number of steps" in result.stderr.split("suggestion:")[1]
