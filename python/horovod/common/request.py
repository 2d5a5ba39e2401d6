# SPDX-License-Identifier: Apache-2.0
"""
Operations without tensors: addresses, sizes and shapes in, the same out. Every framework's ops.py stands on this.

Thread safety: all functions may be called from any thread.
Lifetime: `keep` is held until the operation was synchronised or is over, so its memory stays valid.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

from horovod.common import abi, names
from horovod.common.arguments import whole_number
from horovod.common.exceptions import HorovodInternalError
from horovod.common.library import load
from horovod.common.memory import Block
from horovod.common.operation import NOWHERE, Operation, Slot, give_back, take_slot
from horovod.common.status import check, exception, forked


class Result(NamedTuple):
    """An output that only the operation knows."""

    block: Block | None  # None where there are no bytes
    shape: tuple[int, ...]
    received_splits: tuple[int, ...] = ()  # alltoall: rows from every rank
    number: int = 0  # join: the rank that came last


# The operations that have such an output.
_WITH_RESULT = frozenset((abi.ALLGATHER, abi.ALLTOALL, abi.REDUCESCATTER, abi.JOIN))

# A wait inside the library does not see Ctrl-C; Python looks for it between two such waits.
_INTERRUPT_CHECK_S = 0.25


def _failure(code: int, operation: Operation) -> Exception:
    # These are answers to this call's arguments: the other ranks have not heard of it.
    if code in (abi.INVALID_ARGUMENT, abi.ABORTED):
        names.take_back(operation.name, operation.process_set)
    return exception(code)


def run(operation: Operation, keep: Sequence[Any]) -> Result | None:
    """
    Run the operation and return when it has finished. Return the output if the library allocated it, else None.

    After Ctrl-C the operation goes on, and `keep` is held until it is over.
    """
    if _left:
        _sweep()
    with_result = operation.op in _WITH_RESULT
    description = operation.description()
    slot = take_slot(operation, description)
    try:
        code = load().hvd_run_for(None, slot.request_ref, _INTERRUPT_CHECK_S, slot.result_ref, slot.handle_ref)
        if code == abi.OK:
            return taken(slot.result) if with_result else None
        if code != abi.IN_PROGRESS:
            raise _failure(code, operation)
        _pending[slot.handle.value] = _Pending(keep, lambda result: result, with_result)
        return synchronize(slot.handle.value)
    except BaseException:
        _leave_unknown(slot, _Pending(keep, lambda result: result, with_result))
        raise
    finally:
        give_back(slot, description)


def taken(output: abi.Output) -> Result:
    """Return an output, whose memory the library hands over."""
    shape = tuple(output.shape[: output.ndim]) if output.ndim else ()
    splits = tuple(output.received_splits[: output.nsplits]) if output.nsplits else ()
    if not output.data:
        return Result(None, shape, splits, output.number)
    if not output.engine_owned:
        raise AssertionError("the library returned memory that it does not hand over")
    return Result(Block(output.data, output.bytes), shape, splits, output.number)


class _Pending:
    """An operation in flight, or a group: `others` are the handles of its members after the first."""

    __slots__ = ("keep", "finish", "with_result", "others")

    def __init__(
        self, keep: Sequence[Any], finish: Callable[[Any], Any], with_result: bool, others: Sequence[int] | None = None
    ) -> None:
        self.keep = keep
        self.finish = finish
        self.with_result = with_result
        self.others = others

    def outputs(self, handle: int) -> Any:
        """Return the result, or those of a group, or None."""
        if not self.with_result:
            return None
        if self.others is None:
            return _output_of(handle)
        return [_output_of(one) for one in (handle, *self.others)]

    def await_others(self) -> None:
        """Wait for the moment in which the library marks one member of a group after the other as over."""
        for one in self.others or ():
            load().hvd_wait(None, one, -1.0)

    def release(self, handle: int) -> None:
        for one in (handle, *(self.others or ())):
            load().hvd_release(None, one)


_nobodys = _Pending((), lambda _: None, False)

# Operations by handle. None: they were there when this rank shut down, and their memory is given back.
_pending: dict[int, _Pending | None] = {}
# What operations gave that had nothing to do.
_done: dict[int, Any] = {}
_done_handles = itertools.count(-1, -1)  # the library's are positive
# Operations that nobody asks for any more. Their memory is in use until they are over.
_left: dict[int, _Pending] = {}
# Who takes an entry out of the tables owns its output. Reentrant, for signal handlers.
_lock = threading.RLock()


def _renew_lock() -> None:
    # Another thread of the parent may have held it, and is not here to let it go.
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def submit(operation: Operation, keep: Sequence[Any], finish: Callable[[Result | None], Any]) -> int:
    """Start it and return its handle; `synchronize` later returns what `finish` makes of the output."""
    if _left:
        _sweep()
    pending = _Pending(keep, finish, operation.op in _WITH_RESULT)
    description = operation.description()
    slot = take_slot(operation, description)
    try:
        code = load().hvd_submit(None, slot.request_ref, slot.handle_ref)
        if code != abi.OK:
            raise _failure(code, operation)
        handle = slot.handle.value
        _pending[handle] = pending
        return handle
    except BaseException:
        _leave_unknown(slot, pending)  # Ctrl-C may come when the operation has started
        raise
    finally:
        give_back(slot, description)


def submit_group(operations: Sequence[Operation], keep: Sequence[Any], finish: Callable[[Any], Any]) -> int:
    """
    Start all or none of them, and return one handle: they are over together.

    `synchronize` later returns what `finish` makes of the list of their outputs, or of None where there are none.
    """
    if _left:
        _sweep()
    count = len(operations)
    requests, handles = (abi.Request * count)(), (ctypes.c_uint64 * count)()
    held = []
    for operation, request in zip(operations, requests):
        request.struct_size = ctypes.sizeof(abi.Request)
        held.append(operation.describe(request))
        request.name = operation.name
        request.input.data, request.input.bytes = operation.source
        request.output.data, request.output.bytes = operation.target or NOWHERE
    with_result = operations[0].op in _WITH_RESULT
    try:
        code = load().hvd_submit_group(None, requests, count, handles)
        if code != abi.OK:
            raise _failure(code, operations[0])
        del held
        _pending[handles[0]] = _Pending(keep, finish, with_result, handles[1:])
        return handles[0]
    except BaseException:
        if handles[0]:  # as in submit
            _pending[handles[0]] = _Pending(keep, finish, with_result, handles[1:])
            leave(handles[0])
        raise


def run_group(operations: Sequence[Operation], keep: Sequence[Any]) -> Any:
    """Do them all and return the list of their outputs, or None where there are none. Ctrl-C as in `run`."""
    handle = submit_group(operations, keep, lambda results: results)
    try:
        return synchronize(handle)
    except BaseException:
        leave(handle)
        raise


def prepare(operation: Operation) -> Slot:
    """
    Return a request that the engine knows already, but for its addresses: for an operation that repeats.

    It lasts until the engine ends. One thread uses it at a time. The engine allocates no output for it.
    """
    slot = Slot(operation)
    slot.request.name = operation.name
    slot.input.bytes = slot.output.bytes = operation.source[1]
    check(load().hvd_prepare(None, slot.request_ref, slot.handle_ref))
    slot.request.prepared, slot.request.name = slot.handle.value, None
    return slot


def run_prepared(slot: Slot, source: int, target: int, keep: Sequence[Any]) -> None:
    """As `run`, with the addresses of input and output."""
    if _left:
        _sweep()
    slot.input.data, slot.output.data = source, target
    slot.handle.value = 0
    try:
        code = load().hvd_run_for(None, slot.request_ref, _INTERRUPT_CHECK_S, None, slot.handle_ref)
        if code == abi.OK:
            return
        if code != abi.IN_PROGRESS:
            raise exception(code)
        _pending[slot.handle.value] = _Pending(keep, lambda _: None, False)
        synchronize(slot.handle.value)
    except BaseException:
        _leave_unknown(slot, _Pending(keep, lambda _: None, False))
        raise


def submit_prepared(slot: Slot, source: int, target: int, keep: Sequence[Any], finish: Callable[[Any], Any]) -> int:
    """As `submit`, with the addresses of input and output. The request may be used again when this returns."""
    if _left:
        _sweep()
    slot.input.data, slot.output.data = source, target
    slot.handle.value = 0
    pending = _Pending(keep, finish, False)
    try:
        code = load().hvd_submit(None, slot.request_ref, slot.handle_ref)
        if code != abi.OK:
            raise exception(code)
        handle = slot.handle.value
        _pending[handle] = pending
        return handle
    except BaseException:
        _leave_unknown(slot, pending)
        raise


def _leave_unknown(slot: Slot, pending: _Pending) -> None:
    """Keep the memory of an operation that may be in flight and in no table yet. If it is over, leave() finds out."""
    if slot.handle.value:
        _pending[slot.handle.value] = pending
        leave(slot.handle.value)


def finished(value: Any) -> int:
    """Return the handle of an operation that had nothing to do; `synchronize` returns `value`."""
    handle = next(_done_handles)
    _done[handle] = value
    return handle


def in_flight(handle: int) -> bool:
    """Whether `synchronize` still has something to do for it, in this life of the engine."""
    return _pending.get(handle) is not None


def _checked_handle(handle: Any) -> int:
    return handle if type(handle) is int else whole_number("handle", handle, "what an _async function returned")


def poll(handle: int) -> bool:
    """Whether the operation is over, with success or not. ValueError for an unknown handle."""
    handle = _checked_handle(handle)
    if handle in _done:
        return True
    if handle not in _pending:
        raise ValueError(f"poll: there is no operation with handle {handle}; was it synchronized already?")
    code = load().hvd_poll(None, handle)
    if code == abi.FAILED_PRECONDITION and forked():
        raise exception(code)
    return code != abi.IN_PROGRESS


def synchronize(handle: int) -> Any:
    """Wait, raise the error or return the result, and forget the operation. Returns None for an unknown handle."""
    handle = _checked_handle(handle)
    if handle not in _pending:
        return _done.pop(handle, None)
    library = load()
    while (code := library.hvd_wait(None, handle, _INTERRUPT_CHECK_S)) == abi.IN_PROGRESS:
        pass
    pending = _pending.get(handle) or _nobodys
    if code == abi.OK and pending.others is None and not pending.with_result:  # nearly always, and faster than below
        with _lock:
            mine = _pending.get(handle) is pending  # neither another thread nor the engine's end took it
            if mine:
                del _pending[handle]
        if mine:
            try:
                return pending.finish(None)
            finally:
                library.hvd_release(None, handle)
    error = exception(code) if code != abi.OK else None
    pending.await_others()
    shut_down = error is not None and not forked() and not library.hvd_is_initialized(None)
    with _lock:
        pending = _pending.pop(handle, _nobodys)
    if pending is _nobodys:  # another thread took it
        return None
    try:
        if pending is None or shut_down:
            # What elastic loops catch, not "call hvd.init() first" or "no such handle".
            raise HorovodInternalError(
                "Horovod has been shut down: hvd.shutdown() was called while the operation was in flight"
            )
        if error is not None:
            raise error
        return pending.finish(pending.outputs(handle))
    finally:
        (pending or _nobodys).release(handle)


def _output_of(handle: int) -> Result:
    output = abi.Output(struct_size=ctypes.sizeof(abi.Output))
    check(load().hvd_get_output(None, handle, ctypes.byref(output)))
    return taken(output)


def leave(handle: int) -> None:
    """Ask no more for an operation that may be in flight. Its memory is kept until it is over."""
    with _lock:
        pending = _pending.pop(handle, None)
        if pending is not None:
            _left[handle] = pending
    _sweep()


def _sweep() -> None:
    library = load()
    for handle in list(_left):
        code = library.hvd_poll(None, handle)
        pending = _left.pop(handle, None) if code != abi.IN_PROGRESS else None
        if pending is None:
            continue
        pending.await_others()
        if code == abi.OK:
            pending.outputs(handle)  # nobody holds them, so they are given back
        pending.release(handle)


def end() -> None:
    """Shut the engine down. All operations are over then, and nothing holds their memory any more."""
    with _lock:
        for handle, pending in list(_pending.items()):  # other threads add to it
            if pending is not None:
                _left[handle] = pending
                _pending[handle] = None
    _sweep()  # while their outputs can still be given back
    check(load().hvd_shutdown(None))
    _left.clear()
