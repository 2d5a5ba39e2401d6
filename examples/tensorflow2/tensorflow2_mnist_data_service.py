# SPDX-License-Identifier: Apache-2.0
"""
Handwritten digits, prepared by a compute job and trained on several processes.

    horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker /tmp/compute.json &
    horovodrun -np 2 python examples/tensorflow2/tensorflow2_mnist_data_service.py /tmp/compute.json

With `--dispatcher-side training` given to the compute job, the training job runs the dispatchers itself. Either end of
training ends the compute job, too.
"""

from __future__ import annotations

import argparse

import horovod.tensorflow.keras as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig
from tensorflow2_mnist_data_service_train_fn_compute_side_dispatcher import train_fn as train_compute_side
from tensorflow2_mnist_data_service_train_fn_training_side_dispatcher import train_fn as train_training_side


def main() -> None:
    """Train with what the config file describes."""
    parser = argparse.ArgumentParser(description="Trains on digits that a compute job prepares.")
    parser.add_argument("configfile", metavar="CONFIGFILE", help="config file that the compute job writes")
    parser.add_argument("--reuse-dataset", action="store_true", help="all ranks share one pass over the data")
    parser.add_argument("--round-robin", action="store_true", help="ranks take turns; with --reuse-dataset")
    options = parser.parse_args()

    compute_config = TfDataServiceConfig.read(options.configfile, wait_for_file_creation=True)
    sides = {"compute": train_compute_side, "training": train_training_side}
    sides[compute_config.dispatcher_side](compute_config, options.reuse_dataset, options.round_robin)

    if hvd.rank() == 0:
        compute_config.compute_client().shutdown()


if __name__ == "__main__":
    main()
