# SPDX-License-Identifier: Apache-2.0
"""Gradient tapes whose gradients are those of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.arguments import show
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import twice
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.local_variables import LocalVariables, merge, split
from horovod.tensorflow.mpi_ops import Average
from horovod.tensorflow.ops import current_size
from horovod.tensorflow.reduction import Reduce, _make_allreduce_grads_fn, checked_groups, takes_part


class _DistributedGradientTape(tf.GradientTape):
    """
    A tape around another one, which records.

    All state stays in the inner tape, so it does not matter whether that one has finished, records right now or has
    yet to begin.
    """

    def __init__(self, tape: tf.GradientTape, reduce: Reduce, process_set: ProcessSet, scale_local: bool) -> None:
        # The base class is not initialized: it would be a second tape.
        self._inner = tape
        self._reduce = reduce
        self._process_set = process_set
        self._scale_local = scale_local
        self._local = LocalVariables()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner"], name)

    def __enter__(self) -> _DistributedGradientTape:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)

    def watch(self, tensor: Any) -> None:
        """Record what is done with a tensor."""
        self._inner.watch(tensor)

    def watched_variables(self) -> tuple[Any, ...]:
        """Return the variables that were used."""
        return self._inner.watched_variables()

    def stop_recording(self) -> Any:
        """Return a context in which nothing is recorded."""
        return self._inner.stop_recording()

    def reset(self) -> None:
        """Forget what was recorded."""
        self._inner.reset()

    def jacobian(self, *arguments: Any, **named: Any) -> Any:
        """Return this rank's Jacobian: it is not reduced."""
        return self._inner.jacobian(*arguments, **named)

    def batch_jacobian(self, *arguments: Any, **named: Any) -> Any:
        """Return this rank's Jacobians: they are not reduced."""
        return self._inner.batch_jacobian(*arguments, **named)

    def register_local_source(self, source: Any) -> None:
        """Leave the gradient of a variable, or of a watched tensor, to this rank alone."""
        self._local.add(source)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: Any = False,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """Return the gradients of all ranks, in the structure of `sources`; those of local sources of this rank."""
        if isinstance(use_generic_names, (tf.UnconnectedGradients, str)):  # the fourth argument of a plain tape
            unconnected_gradients = use_generic_names
        flat = tf.nest.flatten(sources)
        _, grads = self._gradients(target, flat, output_gradients, unconnected_gradients)
        return tf.nest.pack_sequence_as(sources, grads)

    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Return (source, gradient) pairs: those of local sources, and those of all others."""
        flat = tf.nest.flatten(sources)
        flags, grads = self._gradients(target, flat, output_gradients, tf.UnconnectedGradients.NONE)
        return split(flags, list(zip(flat, grads)))

    def _gradients(
        self, target: Any, sources: list[Any], output_gradients: Any, unconnected: Any
    ) -> tuple[list[bool], list[Any]]:
        grads = self._inner.gradient(target, sources, output_gradients, unconnected)
        flags = self._local.which(sources)
        local, reduced = split(flags, grads)
        # Only those that are reduced are counted in names: ranks may have different local sources.
        reduced = self._reduce(reduced, split(flags, sources)[1])
        if takes_part(self._process_set):
            twice.mark(reduced, self._process_set)
        if self._scale_local:
            local = scaled_local(local, self._process_set)
        return flags, merge(flags, local, reduced)


def scaled_local(grads: list[Any], process_set: ProcessSet) -> list[Any]:
    """
    Return gradients of local variables, divided by the number of ranks.

    Other ranks' losses reach them through exchanged activations, so they are of the sum of all losses, while what is
    minimized is the average.
    """
    if not grads or not takes_part(process_set):
        return grads
    return [_divided(grad, current_size(process_set)) for grad in grads]


def _divided(grad: Any, size: Any) -> Any:
    if grad is None:
        return None
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(_divided(grad.values, size), grad.indices, grad.dense_shape)
    return grad / tf.cast(size, grad.dtype)


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """
    Return a tape whose `gradient` reduces over the ranks; by default to their average.

    The tape may have finished, be recording, or be used by `with` afterwards. `groups` reduces some gradients together:
    a number of groups, or lists of variables.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> weights = tf.Variable([1.0, 2.0])
    >>> with tf.GradientTape() as tape:
    ...     loss = tf.reduce_sum(weights * weights)
    >>> tape = hvd.DistributedGradientTape(tape)
    >>> tape.gradient(loss, weights).numpy()
    array([2., 4.], dtype=float32)
    """
    _check_tape(gradtape)
    groups = checked_groups(num_groups, groups)
    reduce = _make_allreduce_grads_fn(
        "tape",
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        groups,
        process_set,
    )
    return _DistributedGradientTape(gradtape, reduce, process_set, scale_local_gradients)


def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """
    Return a `DistributedGradientTape` that does not reduce the gradients of some layers.

    `local_layers` is a layer or a list of layers, built or not. Their gradients are divided by the number of ranks
    unless scale_local_gradients=False.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> own = tf.keras.layers.Dense(1)
    >>> with tf.GradientTape() as tape:
    ...     loss = tf.reduce_sum(own(tf.ones([2, 3])))
    >>> tape = hvd.PartialDistributedGradientTape(tape, local_layers=own)
    >>> [gradient.shape.rank for gradient in tape.gradient(loss, own.trainable_variables)]
    [2, 1]
    """
    local = LocalVariables()
    local.add_layers(local_layers)
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        0,
        checked_groups(num_groups, groups),
        process_set,
        scale_local_gradients,
    )
    tape._local = local
    return tape


def _check_tape(tape: Any) -> None:
    if isinstance(tape, _DistributedGradientTape):
        raise ValueError("the tape is distributed already: its gradients would be reduced twice")
    if not isinstance(tape, tf.GradientTape):
        raise TypeError(f"{show('gradtape', tape)} is no tape: give a tf.GradientTape")
