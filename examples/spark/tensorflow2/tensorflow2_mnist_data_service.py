# SPDX-License-Identifier: Apache-2.0
"""
Handwritten digits, prepared by a compute job on Spark and trained by another job on Spark.

    worker_py=$(python -c "import horovod.spark.tensorflow.compute_worker as worker; print(worker.__file__)")
    spark-submit --master "local[4]" "$worker_py" /tmp/compute.json &

    cd examples/spark/tensorflow2
    prefix=tensorflow2_mnist_data_service_train_fn
    spark-submit --master "local[2]" \
      --py-files ${prefix}_compute_side_dispatcher.py,${prefix}_training_side_dispatcher.py \
      tensorflow2_mnist_data_service.py /tmp/compute.json

With `--dispatcher-side training` given to the compute job, the training job runs the dispatchers itself. The end of
training ends the compute job, too.
"""

from __future__ import annotations

import argparse
import os

import horovod.spark
from horovod.tensorflow.data.compute_service import TfDataServiceConfig
from pyspark.sql import SparkSession


def train(configfile: str, reuse_dataset: bool, round_robin: bool) -> None:
    """Train on one rank. The modules of the train functions are there by --py-files."""
    from tensorflow2_mnist_data_service_train_fn_compute_side_dispatcher import train_fn as train_compute_side
    from tensorflow2_mnist_data_service_train_fn_training_side_dispatcher import train_fn as train_training_side

    # The config holds the key of the compute job. It is read where it is used, and not sent.
    compute_config = TfDataServiceConfig.read(configfile, wait_for_file_creation=True)
    sides = {"compute": train_compute_side, "training": train_training_side}
    sides[compute_config.dispatcher_side](compute_config, reuse_dataset, round_robin)


def main() -> None:
    """Train with what the config file describes."""
    parser = argparse.ArgumentParser(description="Trains on digits that a compute job prepares.")
    parser.add_argument("configfile", metavar="CONFIGFILE", help="config file that the compute job writes")
    parser.add_argument("--num-proc", type=int, help="number of ranks (default: all slots of Spark)")
    parser.add_argument("--reuse-dataset", action="store_true", help="all ranks share one pass over the data")
    parser.add_argument("--round-robin", action="store_true", help="ranks take turns; with --reuse-dataset")
    options = parser.parse_args()

    SparkSession.builder.appName("tensorflow2_mnist_data_service").getOrCreate()
    arguments = (os.path.abspath(options.configfile), options.reuse_dataset, options.round_robin)
    compute_config = TfDataServiceConfig.read(options.configfile, wait_for_file_creation=True)
    horovod.spark.run(train, args=arguments, num_proc=options.num_proc)
    compute_config.compute_client().shutdown()


if __name__ == "__main__":
    main()
