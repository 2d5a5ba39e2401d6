# SPDX-License-Identifier: Apache-2.0
"""KerasEstimator and KerasModel are not in this release."""

raise ImportError(
    "horovod.spark.keras: KerasEstimator and KerasModel are not in this release of hvd; "
    "train with horovod.spark.run and horovod.tensorflow.keras instead, see docs/guides/spark.md"
)
