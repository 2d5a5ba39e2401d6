# SPDX-License-Identifier: Apache-2.0
"""
A compute job on Spark: dispatchers and workers of TensorFlow's data service, one worker for every slot.

    spark-submit --master "local[4]" .../horovod/spark/tensorflow/compute_worker.py /shared/compute.json

Its processes stay until a training job calls `compute_client().shutdown()`, or the driver is ended. The driver serves
the registry and writes the config file; the tasks read it, so it must lie on a path that all hosts of the job see.
Importing this module has no effect.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys


def main(
    dispatchers: int = 1, dispatcher_side: str = "compute", configfile: str | os.PathLike[str] = "", timeout: int = 60
) -> None:
    """
    Be the driver of a compute job, in the active Spark session or a new one, and return after an orderly end.

    >>> import threading                                                             # doctest: +SKIP
    >>> from horovod.spark.tensorflow import compute_worker                          # doctest: +SKIP
    >>> from horovod.tensorflow.data.compute_service import TfDataServiceConfig      # doctest: +SKIP
    >>> job = threading.Thread(target=compute_worker.main, args=(1, "compute", "/tmp/compute.json"))  # doctest: +SKIP
    >>> job.start()                                                                  # doctest: +SKIP
    >>> config = TfDataServiceConfig.read("/tmp/compute.json", wait_for_file_creation=True)  # doctest: +SKIP
    >>> config.compute_client().shutdown()                                           # doctest: +SKIP
    >>> job.join()                                                                   # doctest: +SKIP
    """
    from pyspark.sql import SparkSession

    import horovod.spark
    from horovod.tensorflow.data import compute_worker
    from horovod.tensorflow.data.compute_service import TfDataServiceConfig
    from horovod.tensorflow.data.keeper import keeper

    context = SparkSession.builder.getOrCreate().sparkContext
    size = context.defaultParallelism
    compute_worker.check(dispatchers, dispatcher_side, configfile, size)
    path = os.path.abspath(configfile)
    key = secrets.token_bytes(compute_worker.KEY_BYTES)
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(compute_worker.serve(dispatchers, size // dispatchers, key))
        config = TfDataServiceConfig(
            dispatchers, size // dispatchers, dispatcher_side, service.addresses(), key, timeout
        )
        stack.enter_context(keeper(key, path))
        stack.callback(config.remove, path)
        config.write(path)
        horovod.spark.run(_be_rank, (path, timeout), num_proc=size)


def _be_rank(path: str, timeout: int) -> None:
    # No Horovod job: the ranks of a compute job have nothing to reduce.
    from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn

    config = TfDataServiceConfig.read(path, wait_for_file_creation=True)
    compute_worker_fn(config, int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"]))


if __name__ == "__main__":
    # spark-submit puts this file's folder first, where its name hides other modules.
    sys.path[:] = [
        folder for folder in sys.path if os.path.abspath(folder) != os.path.dirname(os.path.abspath(__file__))
    ]
    from horovod.tensorflow.data.compute_worker import command

    command(
        main,
        "spark-submit compute_worker.py",
        "Runs a TensorFlow data service on the slots of Spark, for training jobs to use.",
    )
