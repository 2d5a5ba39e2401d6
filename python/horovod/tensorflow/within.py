# SPDX-License-Identifier: Apache-2.0
"""Detects strategies that reduce gradients, so that tapes and optimizers do not reduce them again."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

MARK = "_hvd_reduces_gradients"


def reduces_for_itself(strategy: Any = None) -> bool:
    """Return whether a strategy, by default the current one, comes from horovod.tensorflow.strategy."""
    if strategy is None:
        if not tf.distribute.has_strategy():
            return False
        strategy = tf.distribute.get_strategy()
    return getattr(strategy, MARK, False)
