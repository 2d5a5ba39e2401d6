# SPDX-License-Identifier: Apache-2.0
"""Gives tf.data.Dataset the method send_to_data_service."""

from __future__ import annotations

from horovod.compat import hooks


def add() -> None:
    """Add the method as soon as the program has TensorFlow, which is not imported here."""
    hooks.after_import("tensorflow", _add)


def _add() -> None:
    import tensorflow as tf

    from horovod.tensorflow.data.send import send_to_data_service

    tf.data.Dataset.send_to_data_service = send_to_data_service
