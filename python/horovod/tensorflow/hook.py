# SPDX-License-Identifier: Apache-2.0
"""The broadcast of variables at the start of a session of tf.compat.v1."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.arguments import root_rank as checked_root
from horovod.tensorflow.functions import broadcast_global_variables


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """
    Gives all ranks root_rank's global variables as soon as a session has initialized or restored them.

    Weights, slots of optimizers and the global step are among them: only root_rank needs a checkpoint.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> with tf.Graph().as_default():
    ...     step = tf.compat.v1.train.create_global_step()
    ...     hooks = [hvd.BroadcastGlobalVariablesHook(0)]
    ...     with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
    ...         print(session.run(step))
    0
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        self.root_rank = checked_root(root_rank)
        self.device = device
        self._broadcast: Any = None

    def begin(self) -> None:
        """Add the operation, while the graph can still be changed."""
        if self._broadcast is None or self._broadcast.graph is not tf.compat.v1.get_default_graph():
            self._broadcast = broadcast_global_variables(self.root_rank, self.device)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Run the operation before the first training step."""
        session.run(self._broadcast)
