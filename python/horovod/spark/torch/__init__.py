# SPDX-License-Identifier: Apache-2.0
"""TorchEstimator and TorchModel are not in this release."""

raise ImportError(
    "horovod.spark.torch: TorchEstimator and TorchModel are not in this release of hvd; "
    "train with horovod.spark.run and horovod.torch instead, see docs/guides/spark.md"
)
