# SPDX-License-Identifier: Apache-2.0
"""
TensorFlow's data service on the ranks of a launcher: input is computed elsewhere than training.

`python -m horovod.tensorflow.data.compute_worker CONFIGFILE` is a compute job; a training job imports
horovod.tensorflow.data.compute_service. docs/guides/data-service.md shows both.
"""
