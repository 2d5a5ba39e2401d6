# SPDX-License-Identifier: Apache-2.0
"""Sessions that begin with the same variables on all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.tensorflow.functions import broadcast_variables
from horovod.tensorflow.strategy import private


class Creator(tf.compat.v1.train.SessionCreator):
    """
    Initializes variables on every rank, restores the checkpoint if this rank has one, and broadcasts from rank 0.

    Create it before the graph is finalized. TensorFlow's own creators do not work: if rank 0 restores, it does not run
    the initializers, and the other ranks wait for it in their broadcasts.
    """

    def __init__(self, scaffold: Any, config: Any, checkpoint: str | None, spreads: bool) -> None:
        self._scaffold, self._config, self._checkpoint = scaffold, config, checkpoint
        found = [component for one in tf.compat.v1.global_variables() for component in components_of(one)]
        found = [one for one in found if one.dtype.base_dtype != tf.string]
        self._spread = broadcast_variables(found, root_rank=0) if spreads and found else None

    def create_session(self) -> tf.compat.v1.Session:
        """Return a session that is ready to run steps."""
        scaffold = self._scaffold
        scaffold.finalize()
        session = tf.compat.v1.Session(config=self._config)
        session.run(scaffold.init_op, feed_dict=scaffold.init_feed_dict)
        if scaffold.init_fn is not None:
            scaffold.init_fn(session)
        if self._checkpoint is not None:
            scaffold.saver.restore(session, self._checkpoint)
        if self._spread is not None:
            session.run(self._spread)
        session.run(scaffold.local_init_op, feed_dict=scaffold.local_init_feed_dict)
        return session


def components_of(variable: Any) -> list[Any]:
    """Return the plain variables inside a distributed variable, or the variable itself."""
    return list(variable.values) if isinstance(variable, private.DistributedVariable) else [variable]


def read_together() -> bool:
    """Return whether saving needs all ranks, because some variables are sums or averages over the ranks."""
    return any(isinstance(one, private.SyncOnReadVariable) for one in tf.compat.v1.global_variables())
