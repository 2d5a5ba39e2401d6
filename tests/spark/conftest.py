# SPDX-License-Identifier: Apache-2.0
"""The one Spark session of the suite: a cluster of two executor JVMs on this machine, with two slots each."""

import os
import sys

import launching
import pytest
from wardens import rank_processes


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local-cluster[2,2,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(folder))
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", str(folder))
        .config("spark.eventLog.compress", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    session.folder = folder
    # Executors come one after the other, and a run without num_proc takes the slots that are there.
    launching.wait_until(lambda: session.sparkContext.defaultParallelism == 4, 120)
    yield session
    session.stop()


@pytest.fixture
def context(spark):
    """The SparkContext; no process of a rank is left behind by the test."""
    yield spark.sparkContext
    launching.wait_until(lambda: not rank_processes())
