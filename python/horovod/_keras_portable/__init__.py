# SPDX-License-Identifier: Apache-2.0
"""horovod.keras for Keras 3 on JAX and on PyTorch. What it does on TensorFlow is in horovod._keras."""
