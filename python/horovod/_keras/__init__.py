# SPDX-License-Identifier: Apache-2.0
"""What horovod.tensorflow.keras and horovod.keras have in common: for Keras 3 on TensorFlow, and for tf_keras."""
