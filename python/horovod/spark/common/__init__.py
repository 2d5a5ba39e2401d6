# SPDX-License-Identifier: Apache-2.0
"""Stores, backends and parameters of the estimators are not in this release."""

raise ImportError(
    "horovod.spark.common: stores, backends and parameters of the estimators are not in this release of hvd; "
    "train with horovod.spark.run instead, see docs/guides/spark.md"
)
