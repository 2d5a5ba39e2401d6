# SPDX-License-Identifier: Apache-2.0
"""Estimators for Lightning are not in this release."""

raise ImportError(
    "horovod.spark.lightning: estimators for Lightning are not in this release of hvd; "
    "train with horovod.spark.run instead, see docs/guides/spark.md"
)
