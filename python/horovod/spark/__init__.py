# SPDX-License-Identifier: Apache-2.0
"""
Ranks on the executors of Spark: ``horovod.spark.run`` runs a function on them and returns the results by rank.

Importing this module imports nothing of Spark; see docs/guides/spark.md.
"""

from horovod.spark.horovod_runner import HorovodRunner
from horovod.spark.runner import run, run_elastic

__all__ = ["HorovodRunner", "run", "run_elastic"]
