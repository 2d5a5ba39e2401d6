# SPDX-License-Identifier: Apache-2.0
"""Keeps AutoGraph out of this package, for which importing it is enough, and this package out of XLA."""

from __future__ import annotations

import tensorflow as tf


def _leave_us_alone() -> None:
    # Nothing here has control flow to rewrite, and rewriting it would add a second to the first trace of each program.
    # The table is TensorFlow's own; where it is gone, tracing takes that second.
    try:
        from tensorflow.python.autograph.core import config

        config.CONVERSION_RULES = (config.DoNotConvert("horovod"), *config.CONVERSION_RULES)
    except (ImportError, AttributeError, TypeError):
        pass


def refuse_xla() -> None:
    """Raise RuntimeError where XLA compiles what is being traced: TensorFlow's own words would be about kernels."""
    try:
        from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext as compiled_by_xla
    except ImportError:
        return
    if compiled_by_xla(tf.compat.v1.get_default_graph()):
        raise RuntimeError(
            "collective operations cannot run inside tf.function(jit_compile=True): XLA does not know other processes. "
            "Compile the parts before and after them, or leave jit_compile out"
        )


_leave_us_alone()
