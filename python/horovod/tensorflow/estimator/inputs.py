# SPDX-License-Identifier: Apache-2.0
"""Input functions over arrays in memory."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import tensorflow as tf

from horovod.common.arguments import show


def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> Callable[[], tf.data.Dataset]:
    """
    Return an input function over arrays: batches of `x` as features, with those of `y` as labels if it is given.

    `x` is an array or a dictionary of arrays, and so is `y`. All have the same number of rows. The input ends after
    `num_epochs` passes, and never if that is None. A batch may hold rows of two passes. `queue_capacity` and
    `num_threads` have no effect.

    Every rank reads all rows, so give each rank its own part of the arrays.

    >>> import numpy as np
    >>> from horovod.tensorflow.estimator.inputs import numpy_input_fn
    >>> read = numpy_input_fn({"x": np.arange(3)}, np.arange(3) * 2, batch_size=2, shuffle=False)
    >>> [(features["x"].tolist(), labels.tolist()) for features, labels in read().as_numpy_iterator()]
    [([0, 1], [0, 2]), ([2], [4])]
    """
    if shuffle not in (True, False):
        raise ValueError(f"{show('shuffle', shuffle)} is neither True nor False: say whether rows are to be shuffled")
    if batch_size < 1:
        raise ValueError(f"{show('batch_size', batch_size)} is too small: give a number from 1 on")
    given = (x,) if y is None else (x, y)
    # Not tf.nest on lists: a list of rows is one array.
    arrays = tuple(_arrays_of(one, name) for one, name in zip(given, ("x", "y")))
    flat = tf.nest.flatten(arrays)
    rows = len(flat[0])
    if any(len(one) != rows for one in flat):
        raise ValueError(f"x and y have arrays of {sorted({len(one) for one in flat})} rows: give all the same number")

    def input_fn() -> tf.data.Dataset:
        places = tf.data.Dataset.range(rows)
        places = places.shuffle(rows) if shuffle and rows else places
        return places.repeat(num_epochs).batch(batch_size).map(batch_at)

    def batch_at(places: tf.Tensor) -> Any:
        # Arrays stay out of the graph, which could not hold more than 2 GiB.
        taken = tf.numpy_function(lambda at: [one[at] for one in flat], [places], [one.dtype for one in flat])
        for tensor, one in zip(taken, flat):
            tensor.set_shape([None, *one.shape[1:]])
        made = tf.nest.pack_sequence_as(arrays, taken)
        return made if y is not None else made[0]

    return input_fn


def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> Callable[[], tf.data.Dataset]:
    """
    Return an input function over a pandas.DataFrame: a dictionary of its columns, and a Series or a frame of labels.

    The arguments are those of `numpy_input_fn`; `target_column` has no effect.

    >>> from horovod.tensorflow.estimator.inputs import pandas_input_fn
    >>> read = pandas_input_fn({"age": [3, 4]}, shuffle=False)  # or a DataFrame
    >>> [features["age"].tolist() for features in read().as_numpy_iterator()]
    [[3, 4]]
    """
    columns = {str(name): np.asarray(x[name]) for name in x}
    labels = {str(name): np.asarray(y[name]) for name in y} if hasattr(y, "columns") else y
    return numpy_input_fn(columns, labels, batch_size, num_epochs, shuffle, queue_capacity, num_threads)


def _arrays_of(given: Any, name: str) -> Any:
    if isinstance(given, dict):
        if not given:
            raise ValueError(f"{show(name, given)} is empty: give at least one array")
        return {key: np.asarray(one) for key, one in given.items()}
    return np.asarray(given)
