# SPDX-License-Identifier: Apache-2.0
"""TensorFlow on Spark: `compute_worker` runs TensorFlow's data service on Spark's executors."""
