# SPDX-License-Identifier: Apache-2.0
"""Operations that give every rank another result: alltoall and reducescatter. Conventions as in ops.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from horovod.common import reductions, request
from horovod.common.arguments import factors
from horovod.common.arguments import splits as checked_splits
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.numpy.adapter import as_input, wrap
from horovod.numpy.compression import Compression, checked_compression
from horovod.numpy.operations import exchanging, scattering


def _received(result: request.Result, dtype: np.dtype, splits: Any) -> Any:
    output = wrap(result, dtype)
    if splits is None:
        return output
    # As the caller's splits, where those are an array.
    return output, np.array(result.received_splits, getattr(splits, "dtype", np.int32))


def alltoall(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """
    Send `splits[r]` rows to each rank r of the set, in order; return the rows received, in rank order.

    With `splits` the result is a pair: the rows, and how many came from each rank. Without, every rank gets an equal
    part, and the result is the rows alone. Rows after the sum of `splits` are not sent.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> hvd.alltoall(np.arange(hvd.size())).tolist() == [hvd.rank()] * hvd.size()
    True
    """
    array = as_input(tensor)
    rows = None if splits is None else checked_splits(splits)
    result = request.run(exchanging(array, rows, process_set).named("alltoall", name), (array,))
    assert result is not None
    return _received(result, array.dtype, splits)


def alltoall_async(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `alltoall`; `synchronize` returns what it would."""
    array = as_input(tensor)
    rows = None if splits is None else checked_splits(splits)
    operation = exchanging(array, rows, process_set).named("alltoall", name)
    return request.submit(operation, (array,), lambda result: _received(result, array.dtype, splits))


def reducescatter(
    tensor: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = reductions.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> np.ndarray:
    """
    Return this rank's rows of the reduction of all ranks' arrays: `Average` or `Sum`.

    The first dimension is divided among the ranks in rank order. Where that does not come out even, the first ranks
    have one row more; with fewer rows than ranks, the last have none.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> hvd.reducescatter(np.ones((hvd.size(), 2)), op=hvd.Average)
    array([[1., 1.]])
    """
    reduce_op = reductions.choose(op, None)
    compressed, context = checked_compression(compression).compress(tensor)
    array = as_input(compressed)
    operation = scattering(array, reduce_op, factors(prescale_factor, postscale_factor), process_set)
    result = request.run(operation.named("reducescatter", name), (array,))
    assert result is not None
    return compression.decompress(wrap(result, array.dtype), context)


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: int = reductions.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start `reducescatter`; `synchronize` returns this rank's rows."""
    reduce_op = reductions.choose(op, None)
    array = as_input(tensor)
    operation = scattering(array, reduce_op, factors(prescale_factor, postscale_factor), process_set)
    return request.submit(operation.named("reducescatter", name), (array,), lambda result: wrap(result, array.dtype))
