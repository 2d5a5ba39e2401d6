# SPDX-License-Identifier: Apache-2.0
"""Collective operations on values. The result is a tensor; in a graph of Keras's session it is what that computes."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from horovod.common import reductions
from horovod.tensorflow import functions, mpi_ops, ops


def allreduce(
    value: Any,
    name: str | None,
    average: bool | None,
    prescale_factor: float,
    postscale_factor: float,
    op: int | None,
    compression: Any,
) -> Any:
    """Reduce a value. For the public functions to call: whoever called them reads the warnings."""
    reduce_op = reductions.choose(op, average)
    return _evaluated(
        lambda: ops.allreduce(
            value,
            op=reduce_op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            compression=compression,
            name=name,
        )
    )


def allgather(value: Any, name: str | None) -> Any:
    """Concatenate the ranks' values."""
    return _evaluated(lambda: mpi_ops.allgather(tf.convert_to_tensor(value), name=name))


def broadcast(value: Any, root_rank: int, name: str | None) -> Any:
    """Return the root's value."""
    return _evaluated(lambda: mpi_ops.broadcast(tf.convert_to_tensor(value), root_rank, name=name))


def reducescatter(value: Any, name: str | None, op: int) -> Any:
    """Reduce a value and return this rank's rows."""
    return _evaluated(lambda: ops.reducescatter(tf.convert_to_tensor(value), op=op, name=name))


def broadcast_global_variables(root_rank: int) -> Any:
    """Overwrite all variables of Keras's session with the root's."""
    return _evaluated(lambda: functions.broadcast_global_variables(root_rank))


def in_session() -> bool:
    """Whether Keras 2 builds one graph and runs it in a session, as after tf.compat.v1.disable_eager_execution()."""
    return not tf.compat.v1.executing_eagerly_outside_functions()


def run(operation: Any) -> Any:
    """Run an operation in Keras's session, whose variables are initialized then."""
    return tf.compat.v1.keras.backend.get_session().run(operation)


def number(value: Any) -> float:
    """Return a number, or that of a variable or a tensor."""
    if in_session() and isinstance(value, (tf.Tensor, tf.Variable)):
        value = run(value)
    return float(value.numpy() if hasattr(value, "numpy") else value)


def _evaluated(make: Callable[[], Any]) -> Any:
    return run(make()) if in_session() else make()
