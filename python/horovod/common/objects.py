# SPDX-License-Identifier: Apache-2.0
"""
Python objects among ranks: pickled by cloudpickle, so only for data from ranks of the same job.

Sizes go first, then bytes. A rank whose object cannot be pickled sends the reason instead, with a negative size:
otherwise the others would wait for it.

An unpickled object may run code, so bytes that somebody changed on their way must not be unpickled. In a job that has a
token, two authentication codes go with the size: one of the size, which is checked before memory is allocated, and one
of the size and the bytes. Both cover the sender's rank, the operation's name and its process set, under a key that only
ranks of the job have.
"""

from __future__ import annotations

import ctypes
import hmac
import pickle
from typing import Any

import cloudpickle
import numpy as np

from horovod.common import abi, arguments, request
from horovod.common.exceptions import HorovodInternalError
from horovod.common.library import load
from horovod.common.operation import Operation
from horovod.common.process_sets import ProcessSet, global_process_set, id_of, ranks_of
from horovod.common.status import check

# The same on every rank although the objects' types may differ: often only the root has one.
_DEFAULT_NAME = "object"


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """
    Return root_rank's object on every rank; the other ranks' argument does not matter.

    TypeError on every rank if it cannot be pickled.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> hvd.broadcast_object({"epoch": 3})
    {'epoch': 3}
    """
    identifier, name, root_rank = id_of(process_set), _checked_name(name), arguments.root_rank(root_rank)
    own = _own_rank() == root_rank
    payload, size = _pickled(obj) if own else (np.empty(0, np.uint8), 0)
    head = _head(size, payload, root_rank, name, identifier) if own else np.zeros(_HEAD_WORDS, np.int64)
    _broadcast(head, root_rank, f"{name}.sz", identifier)
    if not own:
        _check("broadcast_object", _SIZE, head, _NOTHING, root_rank, name, identifier)
        payload = np.empty(abs(int(head[0])), np.uint8)
    _broadcast(payload, root_rank, f"{name}.t", identifier)
    if not own:
        _check("broadcast_object", _OBJECT, head, payload, root_rank, name, identifier)
    if head[0] < 0:
        raise _unpicklable("broadcast_object", {root_rank: payload})
    return obj if own else pickle.loads(payload)


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """
    Return the objects of all ranks, in rank order.

    TypeError on every rank if one of them cannot be pickled.

    >>> import horovod.numpy as hvd
    >>> hvd.init()
    >>> len(hvd.allgather_object("hello")) == hvd.size()
    True
    """
    identifier, name = id_of(process_set), _checked_name(name)
    payload, size = _pickled(obj)
    ranks, own = ranks_of(identifier), _own_rank()
    heads = _allgather(_head(size, payload, own, name, identifier), f"{name}.sz", identifier).reshape(-1, _HEAD_WORDS)
    sizes = heads[:, 0]
    data = _allgather(payload, f"{name}.t", identifier)
    parts = np.split(data, np.cumsum(np.abs(sizes))[:-1])
    for rank, head, part in zip(ranks, heads, parts):
        if rank != own:
            _check("allgather_object", _OBJECT, head, part, rank, name, identifier)
    if (sizes < 0).any():
        reasons = {rank: part for rank, size, part in zip(ranks, sizes, parts) if size < 0}
        raise _unpicklable("allgather_object", reasons)
    return [pickle.loads(part) for part in parts]


# What goes first: the size, the code of the size, and that of size and bytes.
_CODE_BYTES = 32
_CODE_WORDS = _CODE_BYTES // 8
_HEAD_WORDS = 1 + 2 * _CODE_WORDS
_SIZE, _OBJECT = slice(1, 1 + _CODE_WORDS), slice(1 + _CODE_WORDS, _HEAD_WORDS)
_NOTHING = np.empty(0, np.uint8)


def _head(size: int, payload: np.ndarray, sender: int, name: str, identifier: int) -> np.ndarray:
    """Return what goes before the payload."""
    head = np.zeros(_HEAD_WORDS, np.int64)
    head[0] = size
    for part, covered in ((_SIZE, _NOTHING), (_OBJECT, payload)):
        head[part] = np.frombuffer(_code(part, size, covered, sender, name, identifier), np.int64)
    return head


def _check(
    function: str, part: slice, head: np.ndarray, payload: np.ndarray, sender: int, name: str, identifier: int
) -> None:
    """Raise HorovodInternalError unless this part of the head is the sender's code of size and payload."""
    wanted = _code(part, int(head[0]), payload, sender, name, identifier)
    if not hmac.compare_digest(head[part].tobytes(), wanted):
        raise HorovodInternalError(
            f"{function}: the object of rank {sender} was changed on its way and is not unpickled: somebody on the "
            f"network between the hosts does that; set HOROVOD_ENCRYPT=1"
        )


def _code(part: slice, size: int, payload: np.ndarray, sender: int, name: str, identifier: int) -> bytes:
    """Return the authentication code of a payload; zeros in a job without a token, which leaves no machine."""
    code = ctypes.create_string_buffer(_CODE_BYTES)
    kind = "size" if part == _SIZE else "object"
    purpose = f"{kind} {identifier} {sender} {size} {name}".encode("utf-8", "surrogateescape")
    contiguous = np.ascontiguousarray(payload)
    address = contiguous.ctypes.data if contiguous.nbytes else None
    check(load().hvd_authenticate(None, purpose, len(purpose), address, contiguous.nbytes, code))
    return code.raw


def _pickled(obj: Any) -> tuple[np.ndarray, int]:
    """Return an object's bytes and their number; if it has none, the reason why, and its length below zero."""
    try:
        data, sign = cloudpickle.dumps(obj), 1
    except Exception as error:  # of any kind: what objects do when they are pickled is up to them
        data, sign = f"{type(error).__name__}: {error}".encode(errors="backslashreplace"), -1
    payload = np.frombuffer(data, np.uint8).copy()  # broadcasts write to their array, on the root, too
    return payload, sign * payload.size


def _unpicklable(function: str, reasons: dict[int, np.ndarray]) -> TypeError:
    texts = [f"rank {rank}'s object cannot be pickled: {bytes(text).decode()}" for rank, text in reasons.items()]
    return TypeError(f"{function}: {'; '.join(texts)}")


def _checked_name(name: Any) -> str:
    if name is None:
        return _DEFAULT_NAME
    arguments.name_bytes(name)
    return name or _DEFAULT_NAME


def _own_rank() -> int:
    from horovod.common.basics import HorovodBasics

    return HorovodBasics().rank()


def _operation(op: int, kind: str, array: np.ndarray, name: str, identifier: int, **more: Any) -> Operation:
    return Operation(
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
