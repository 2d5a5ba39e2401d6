# SPDX-License-Identifier: Apache-2.0
"""Builds the bridges that HOROVOD_COMPAT asks for, when it is imported; before TensorFlow, if that is still to come."""

from horovod import compat

compat.build()
