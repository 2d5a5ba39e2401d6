# SPDX-License-Identifier: Apache-2.0
"""A compute job and a training job, each under spark-submit, as the example says."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples/spark/tensorflow2"
SUBMIT = pathlib.Path(sys.executable).with_name("spark-submit")
PREFIX = "tensorflow2_mnist_data_service_train_fn"
COUNT = """
import sys
import tensorflow as tf
from horovod.tensorflow.data.compute_service import TfDataServiceConfig
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
data = tf.data.Dataset.range(100).send_to_data_service(config, 0, 1)
print(sorted(int(one) for one in data) == list(range(100)))
"""


def script() -> str:
    """Return the compute job's file as the shell finds it."""
    say = "import horovod.spark.tensorflow.compute_worker as worker; print(worker.__file__)"
    say += "; import sys; print('pyspark' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", say], capture_output=True, text=True, check=True).stdout.split()
    assert found[1] == "False"  # importing it starts nothing
    return found[0]


@pytest.mark.row("d22", "d23", "d24")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("side", ["compute", "training"])
def test_the_example_trains_on_the_data_of_a_compute_job(tmp_path, side):
    # Workers run on the interpreter that has TensorFlow.
    env = {
        **os.environ,
        "PYSPARK_PYTHON": str(REPOSITORY / ".venv/bin/python"),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    options = ("--conf", "spark.ui.enabled=false", "--conf", f"spark.local.dir={tmp_path}", "--master", "local[2]")
    config = str(tmp_path / "compute.json")
    modules = ",".join(f"{PREFIX}_{side}_side_dispatcher.py" for side in ("compute", "training"))
    words = [SUBMIT, *options, script(), config, "--dispatcher-side", side]
    compute = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True)
    try:
        if side == "compute":
            count = [env["PYSPARK_PYTHON"], "-c", COUNT, config]
            counted = subprocess.run(count, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
            assert counted == "True\n"
        train = [SUBMIT, *options, "--py-files", modules, "tensorflow2_mnist_data_service.py", config]
        done = subprocess.run(train, cwd=EXAMPLE, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        _, said = compute.communicate()  # training ends it
    finally:
        compute.kill()
        compute.wait()
    assert compute.returncode == 0, said
    accuracy = dict(re.findall(r"rank (\d) of 2: accuracy ([\d.]+)", done.stdout))
    assert sorted(accuracy) == ["0", "1"]
    assert all(float(one) > 0.5 for one in accuracy.values())
    assert not os.path.exists(config)
