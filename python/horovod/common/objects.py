# SPDX-License-Identifier: Apache-2.0
"""Python objects among ranks: pickled by cloudpickle, so only for data from ranks of the same job."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import numpy as np

from horovod.common import abi, arguments, request
from horovod.common.process_sets import ProcessSet, global_process_set, id_of

# The same on every rank although the objects' types may differ: often only the root has one.
_DEFAULT_NAME = "object"


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """
    Return root_rank's object on every rank; the other ranks' argument does not matter.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> hvd.broadcast_object({"epoch": 3})
    {'epoch': 3}
    """
    identifier, name, root_rank = id_of(process_set), _checked_name(name), arguments.root_rank(root_rank)
    own = _own_rank() == root_rank
    payload = np.frombuffer(cloudpickle.dumps(obj), np.uint8).copy() if own else np.empty(0, np.uint8)
    size = np.array([payload.size], np.int64)
    _broadcast(size, root_rank, f"{name}.sz", identifier)
    if not own:
        payload = np.empty(int(size[0]), np.uint8)
    _broadcast(payload, root_rank, f"{name}.t", identifier)
    return obj if own else pickle.loads(payload)


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """
    Return the objects of all ranks, in rank order.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> len(hvd.allgather_object("hello")) == hvd.size()
    True
    """
    identifier, name = id_of(process_set), _checked_name(name)
    payload = np.frombuffer(cloudpickle.dumps(obj), np.uint8)
    sizes = _allgather(np.array([payload.size], np.int64), f"{name}.sz", identifier)
    data = _allgather(payload, f"{name}.t", identifier)
    ends = np.cumsum(sizes)
    return [pickle.loads(data[end - size : end]) for size, end in zip(sizes, ends)]


def _checked_name(name: Any) -> str:
    if name is None:
        return _DEFAULT_NAME
    arguments.name_bytes(name)
    return name or _DEFAULT_NAME


def _own_rank() -> int:
    from horovod.common.basics import HorovodBasics

    return HorovodBasics().rank()


def _operation(op: int, kind: str, array: np.ndarray, name: str, identifier: int, **more: Any) -> request.Operation:
    return request.Operation(
        op=op,
        process_set=identifier,
        dtype=abi.DTYPES[array.dtype.name],
        shape=array.shape,
        source=(array.ctypes.data, array.nbytes),
        **more,
    ).named(kind, name)


def _broadcast(array: np.ndarray, root_rank: int, name: str, identifier: int) -> None:
    target = (array.ctypes.data, array.nbytes)
    operation = _operation(abi.BROADCAST, "broadcast", array, name, identifier, target=target, root_rank=root_rank)
    request.run(operation, (array,))


def _allgather(array: np.ndarray, name: str, identifier: int) -> np.ndarray:
    result = request.run(_operation(abi.ALLGATHER, "allgather", array, name, identifier), (array,))
    assert result is not None
    if result.block is None:
        return np.empty(result.shape, array.dtype)
    return np.asarray(result.block).view(array.dtype).reshape(result.shape)
