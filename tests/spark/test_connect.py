# SPDX-License-Identifier: Apache-2.0
"""
horovod.spark.run with a session of Spark Connect, whose server this program starts.

It needs packages that requirements.txt does not list: pip install "pyspark[connect]" zstandard.
"""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import horovod.spark
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote("local[3]").getOrCreate()

def total(factor):
    import horovod.numpy as hvd
    import numpy as np
    hvd.init()
    print("rank", hvd.rank())
    return hvd.rank(), hvd.allreduce(np.full(2, float(factor * hvd.rank())), op=hvd.Sum).tolist()

def fail():
    import horovod.numpy as hvd
    hvd.init()
    if hvd.rank() == 1:
        raise LookupError("a sentence of the user's")
    hvd.barrier()

print(horovod.spark.run(total, args=(3,), num_proc=2))
for call in (lambda: horovod.spark.run(fail, num_proc=2), lambda: horovod.spark.run(fail)):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        print(type(error).__name__, str(error).splitlines()[0], repr(error.__cause__))
spark.stop()
"""


@pytest.mark.timeout(600)
def test_results_and_failures_of_a_run_by_connect():
    for package in ("grpc_status", "pandas", "pyarrow", "zstandard"):
        pytest.importorskip(package)
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *lines, result, failure, refused = done.stdout.splitlines()
    assert sorted(lines) == ["[0]<stdout>:rank 0", "[1]<stdout>:rank 1"]
    assert result == "[(0, [3.0, 3.0]), (1, [3.0, 3.0])]"
    assert failure.startswith("RuntimeError rank 1 (host ")
    assert "raised LookupError: a sentence of the user's" in failure
    assert refused.startswith("ValueError num_proc=None: Spark Connect does not tell how many slots there are")
