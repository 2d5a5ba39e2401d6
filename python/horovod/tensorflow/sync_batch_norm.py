# SPDX-License-Identifier: Apache-2.0
"""
Batch normalization over the batches of all ranks.

The layer is that of the Keras in use, with the mean and variance of all ranks' rows. Importing this file imports Keras.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.arguments import show
from horovod.common.process_sets import global_process_set
from horovod.tensorflow.mpi_ops import Sum, _allreduce
from horovod.tensorflow.naming import call_site
from horovod.tensorflow.reduction import takes_part

_KERAS_3 = hasattr(tf.keras, "ops")


def _moments_of_all_ranks(inputs: Any, axes: Any, keepdims: bool, weights: Any) -> tuple[Any, Any]:
    """
    Return mean and variance of all ranks' inputs along `axes`; `weights` say how much each of them counts.

    One small exchange in float64: sums of squares of a rank are large beside their differences, and float32 would lose
    them. Its gradient is the sum of all ranks' gradients, because every rank's loss depends on every rank's inputs.
    """
    axes = list(axes)
    if weights is None:
        mean = tf.reduce_mean(inputs, axes, keepdims=True)
        spread = tf.reduce_sum(tf.math.squared_difference(inputs, mean), axes, keepdims=True)
        rows = tf.reduce_prod(tf.gather(tf.shape(inputs), axes))
        count = tf.fill(tf.shape(mean), tf.cast(rows, tf.float64))
        # A rank without rows has no mean, and no part in that of all.
        mean = tf.where(rows > 0, mean, tf.zeros_like(mean))
    else:
        weights = tf.broadcast_to(tf.cast(weights, inputs.dtype), tf.shape(inputs))
        count = tf.reduce_sum(weights, axes, keepdims=True)
        mean = tf.math.divide_no_nan(tf.reduce_sum(weights * inputs, axes, keepdims=True), count)
        spread = tf.reduce_sum(weights * tf.math.squared_difference(inputs, mean), axes, keepdims=True)
    count, mean, spread = (tf.cast(one, tf.float64) for one in (tf.stop_gradient(count), mean, spread))
    own = tf.stack([count, count * mean, spread + count * tf.square(mean)])
    total = _allreduce(own, name=call_site("sync_batch_norm"), op=Sum, ignore_name_scope=True)
    count, sums, squares = tf.unstack(total)
    mean = tf.math.divide_no_nan(sums, count)
    variance = tf.maximum(tf.math.divide_no_nan(squares, count) - tf.square(mean), 0.0)
    if not keepdims:
        mean, variance = tf.squeeze(mean, axes), tf.squeeze(variance, axes)
    return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)


@tf.keras.utils.register_keras_serializable(package="horovod")
class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """
    `tf.keras.layers.BatchNormalization` with the moments of all ranks' batches, which may differ in size.

    Use it if the batches of each rank are small. All ranks must call the layer the same number of times.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> layer = hvd.SyncBatchNormalization()
    >>> layer(tf.constant([[1.0], [3.0]]), training=True).shape
    TensorShape([2, 1])
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused is not False:
            raise ValueError(f"{show('fused', fused)}: the fused kernel knows the rows of this rank only; give False")
        super().__init__(**kwargs if _KERAS_3 else {**kwargs, "fused": False})

    # Keras 3 and Keras 2 call a method of this name, with different arguments.
    if _KERAS_3:

        def _moments(self, inputs: Any, mask: Any) -> tuple[Any, Any]:
            if not takes_part(global_process_set):
                return super()._moments(inputs, mask)
            weights = None if mask is None else tf.expand_dims(mask, -1)
            return _moments_of_all_ranks(tf.convert_to_tensor(inputs), self._reduction_axes, False, weights)

    else:

        def _moments(self, inputs: Any, reduction_axes: Any, keep_dims: bool, mask: Any = None) -> tuple[Any, Any]:
            if not takes_part(global_process_set):
                return super()._moments(inputs, reduction_axes, keep_dims, **({} if mask is None else {"mask": mask}))
            weights = None if mask is None else tf.expand_dims(mask, -1)
            return _moments_of_all_ranks(inputs, reduction_axes, keep_dims, weights)
