# SPDX-License-Identifier: Apache-2.0
"""Keeps AutoGraph out of this package. Importing it is enough."""

from __future__ import annotations


def _leave_us_alone() -> None:
    # Nothing here has control flow to rewrite, and rewriting it would add a second to the first trace of each program.
    # The table is TensorFlow's own; where it is gone, tracing takes that second.
    try:
        from tensorflow.python.autograph.core import config

        config.CONVERSION_RULES = (config.DoNotConvert("horovod"), *config.CONVERSION_RULES)
    except (ImportError, AttributeError, TypeError):
        pass


_leave_us_alone()
