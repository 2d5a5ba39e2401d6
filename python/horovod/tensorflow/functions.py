# SPDX-License-Identifier: Apache-2.0
"""
Gives all ranks the state of one rank: variables and Python objects.

Variables may be tf.Variable, resource or reference variables of tf.compat.v1, and those of Keras 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

import tensorflow as tf

from horovod.common import objects
from horovod.common.arguments import name_bytes, show
from horovod.common.arguments import root_rank as checked_root
from horovod.common.process_sets import ProcessSet, global_process_set, id_of
from horovod.tensorflow.local_variables import inner_variable
from horovod.tensorflow.mpi_ops import _grouped_broadcast
from horovod.tensorflow.naming import call_site
from horovod.tensorflow.ops import on_device

# Types that ranks do not exchange, as types of the same size that they do: only the bits matter here.
_SAME_BITS = {
    tf.uint32: tf.int32,
    tf.uint64: tf.int64,
    tf.complex64: tf.float32,
    tf.complex128: tf.float64,
}


def broadcast_(
    variables: Iterable[Any], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """
    Overwrite variables with root_rank's, all in one operation, and return them as a list.

    In a graph of tf.compat.v1 the list has one tensor per variable: running any of them overwrites its variable and
    gives the new value.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> weights = tf.Variable([1.0, 2.0])
    >>> hvd.broadcast_([weights], root_rank=0)[0] is weights
    True
    """
    given = _listed(variables)
    resources = {hasattr(inner_variable(variable), "handle") for variable in given}
    if len(resources) > 1:
        raise ValueError("broadcast_ got resource variables and reference variables: give one kind at a time")
    if name is not None:
        name_bytes(name)
    eager = _in_eager_program()
    assigned = _broadcast(given, root_rank, name, process_set, read_value=not eager)
    return given if eager else assigned


def broadcast_variables(
    variables: Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> Any:
    """
    Overwrite variables with root_rank's, all in one operation.

    Inside a tf.function it happens each time the function runs. In a graph of tf.compat.v1 the operation is returned,
    to be run once the variables are initialized. `inplace` is for programs that give it: variables are always
    overwritten, and no copy of them is kept.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> weights, steps = tf.Variable([1.0, 2.0]), tf.Variable(7)
    >>> hvd.broadcast_variables([weights, steps], root_rank=0)
    >>> steps.numpy().item()
    7
    """
    assigned = _broadcast(_listed(variables), root_rank, None, process_set)
    return None if _in_eager_program() else tf.group(*assigned)


def broadcast_global_variables(root_rank: int, device: str = "") -> Any:
    """
    Return the operation of a v1 graph that overwrites all its global variables with root_rank's.

    Run it after the initializer. RuntimeError if TensorFlow runs eagerly: there are no global variables then.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     step = tf.compat.v1.train.create_global_step()
    ...     broadcast = hvd.broadcast_global_variables(0)
    ...     _ = session.run(tf.compat.v1.global_variables_initializer())
    ...     _ = session.run(broadcast)
    ...     print(session.run(step))
    0
    """
    if _in_eager_program():
        raise RuntimeError(
            "hvd.broadcast_global_variables() is for graphs of tf.compat.v1, and TensorFlow runs eagerly: "
            "use hvd.broadcast_variables(model.variables, root_rank=0)"
        )
    with on_device(device):
        return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """
    Return root_rank's object on every rank, at once, without a session or a function of TensorFlow.

    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.broadcast_object({"epoch": 3}, root_rank=0)
    {'epoch': 3}
    """
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """
    Return `broadcast_object` with all arguments but the object.

    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> from_root = hvd.broadcast_object_fn(root_rank=0)
    >>> from_root([1, 2])
    [1, 2]
    """
    checked_root(root_rank)
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """
    Return the objects of all ranks, in rank order.

    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> len(hvd.allgather_object("hello")) == hvd.size()
    True
    """
    return objects.allgather_object(obj, name, process_set)


def _in_eager_program() -> bool:
    # Also inside a tf.function of such a program, whose assignments run without being asked for.
    return tf.compat.v1.executing_eagerly_outside_functions()


def _listed(variables: Any) -> list[Any]:
    if hasattr(variables, "assign"):
        raise TypeError(f"{show('variables', variables)} is a single variable: give a list of variables")
    return list(variables)


def _broadcast(
    variables: list[Any], root_rank: int, name: str | None, process_set: ProcessSet, read_value: bool = False
) -> list[Any]:
    root = checked_root(root_rank)
    id_of(process_set)
    targets = [_checked(variable) for variable in variables]
    if not targets:
        return []
    values = [_exchangeable(target.read_value()) for target in targets]
    received = _grouped_broadcast(
        values, root, name=name or call_site("broadcast_variables"), ignore_name_scope=True, process_set=process_set
    )
    return [
        target.assign(_as_before(value, target.dtype.base_dtype), read_value=read_value)
        for target, value in zip(targets, received)
    ]


def _checked(variable: Any) -> tf.Variable:
    target = inner_variable(variable)
    if not isinstance(target, tf.Variable):
        if hasattr(variable, "assign"):
            raise ValueError(f"{show('variable', variable)} has no value yet: build its layer or optimizer first")
        raise TypeError(f"{show('variables', variable)} is no variable: give tf.Variables or variables of Keras")
    if target.dtype.base_dtype in (tf.string, tf.resource, tf.variant):
        raise TypeError(f"variable {target.name}: {target.dtype.name} cannot be broadcast; use hvd.broadcast_object")
    return target


def _exchangeable(value: Any) -> Any:
    same_bits = _SAME_BITS.get(value.dtype)
    return value if same_bits is None else tf.bitcast(value, same_bits)


def _as_before(value: Any, dtype: tf.DType) -> Any:
    return value if value.dtype == dtype else tf.bitcast(value, dtype)
