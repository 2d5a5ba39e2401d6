# SPDX-License-Identifier: Apache-2.0
"""The engine of one process group of torch.distributed, beside the engine that `hvd.init()` makes."""

from __future__ import annotations

import ctypes
import socket
import threading
import weakref
from typing import Any

from horovod.common import abi, request
from horovod.common.exceptions import HorovodInternalError, HorovodUnsupportedError
from horovod.common.library import load
from horovod.common.operation import Operation, give_back, take_slot
from horovod.common.status import check, exception
from horovod.torch.futures import Waiter

_SLICE_S = 0.25  # a wait inside the library does not see Ctrl-C
_PAIRS_UP_TO = 16  # ranks of a group that can send to each other


class Flight:
    """
    An operation of a group. A name is in flight once, so this one starts when the one before it of its name is over.

    Thread safety: `end` from any thread, the rest for the one that makes it.
    """

    def __init__(self, engine: Engine, operation: Operation, before: Flight | None) -> None:
        self.over = False
        self._engine, self._operation = engine, operation
        self._before = before if before is not None and not before.over else None
        self._lock = threading.Lock()
        self._handle = None if self._before is not None else engine.submit(operation)
        self._result: request.Result | None = None
        self._error: Exception | None = None

    def end(self) -> None:
        """Wait for its end, however it ends."""
        with self._lock:
            if self.over:
                return
            try:
                if self._handle is None:
                    self._before.end()  # type: ignore[union-attr]
                    self._handle = self._engine.submit(self._operation)
                self._result = self._engine.wait(self._handle, self._operation.target is None)
            except Exception as error:
                self._error = error
            self._before = None
            self.over = True

    def result(self) -> request.Result | None:
        """Return the output of an operation that is over, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._result


class Engine:
    """An engine that is not the process-wide one. Thread safety: any thread may call anything but `close`."""

    def __init__(self, store: Any, rank: int, size: int, timeout_s: float) -> None:
        self.size = size
        library, server, port = load(), ctypes.c_void_p(), ctypes.c_int32()
        _refuse_several_hosts(store, rank, size)
        if rank == 0:
            check(library.hvd_store_serve(b"127.0.0.1:0", None, ctypes.byref(server), ctypes.byref(port)))
            store.set("hvd/address", f"127.0.0.1:{port.value}")
        address = store.get("hvd/address")
        # A pair of ranks can exchange without the others.
        self._pairs = [(i, j) for i in range(size) for j in range(i + 1, size)] if 2 < size <= _PAIRS_UP_TO else []
        options = abi.InitOptions(struct_size=ctypes.sizeof(abi.InitOptions), rank=rank, size=size, timeout_s=timeout_s)
        options.rendezvous = address
        options.process_set_count = len(self._pairs)
        options.process_set_sizes = (ctypes.c_int32 * len(self._pairs))(*[2] * len(self._pairs))
        members = [member for pair in self._pairs for member in pair]
        options.process_set_ranks = (ctypes.c_int32 * len(members))(*members)
        options.flags = abi.INIT_NO_SIGNAL_HANDLERS
        self._context = ctypes.c_void_p()
        self._flights: dict[tuple[int, bytes], Flight] = {}  # the last of each name
        self.waiter = Waiter()
        try:
            check(library.hvd_init(ctypes.byref(options), ctypes.byref(self._context)))
        finally:
            library.hvd_store_server_free(server)
        self.close = weakref.finalize(self, _close, self._context, self.waiter)

    def pair(self, rank: int, other: int) -> int:
        """Return the process set of two ranks."""
        if self.size == 2:
            return 0
        if not self._pairs:
            raise HorovodUnsupportedError(f"send and recv work among at most {_PAIRS_UP_TO} ranks, and not to oneself")
        return 1 + self._pairs.index((min(rank, other), max(rank, other)))

    def run(self, operation: Operation) -> request.Result | None:
        """Do it on this thread; return the output where the library allocated it."""
        before = self._flights.pop((operation.process_set, operation.name), None)
        if before is not None:
            before.end()
        with_result = operation.target is None
        description = operation.description()
        slot = take_slot(operation, description)
        try:
            code = load().hvd_run_for(self._context, slot.request_ref, _SLICE_S, slot.result_ref, slot.handle_ref)
            if code == abi.IN_PROGRESS:
                return self.wait(slot.handle.value, with_result)
            if code != abi.OK:
                raise exception(code)
            return request.taken(slot.result) if with_result else None
        finally:
            give_back(slot, description)

    def start(self, operation: Operation) -> Flight:
        """Start it, now or when the last one of its name is over. `end` is owed to the flight."""
        key = (operation.process_set, operation.name)
        flight = self._flights[key] = Flight(self, operation, self._flights.get(key))
        return flight

    def submit(self, operation: Operation) -> int:
        """Start it and return its handle, which `wait` is owed."""
        if self.waiter.closing:
            raise HorovodInternalError("the process group was destroyed before the operation could start")
        description = operation.description()
        slot = take_slot(operation, description)
        try:
            check(load().hvd_submit(self._context, slot.request_ref, slot.handle_ref))
            return slot.handle.value
        finally:
            give_back(slot, description)

    def wait(self, handle: int, with_result: bool) -> request.Result | None:
        """Wait for its end and return its output."""
        library = load()
        while (code := library.hvd_wait(self._context, handle, _SLICE_S)) == abi.IN_PROGRESS:
            if self.waiter.closing:
                raise HorovodInternalError("the process group was destroyed while the operation was in flight")
        try:
            if code != abi.OK:
                raise exception(code)
            if not with_result:
                return None
            output = abi.Output(struct_size=ctypes.sizeof(abi.Output))
            check(library.hvd_get_output(self._context, handle, ctypes.byref(output)))
            return request.taken(output)
        finally:
            library.hvd_release(self._context, handle)


def _close(context: ctypes.c_void_p, waiter: Waiter) -> None:
    waiter.stop()  # the library frees the context, so nobody may be in a call with it
    load().hvd_shutdown(context)
    waiter.left.clear()


def _refuse_several_hosts(store: Any, rank: int, size: int) -> None:
    store.set(f"hvd/host/{rank}", socket.gethostname())
    hosts = {bytes(store.get(f"hvd/host/{one}")) for one in range(size)}
    if len(hosts) > 1:
        raise HorovodUnsupportedError(
            f"backend hvd: the ranks are on {len(hosts)} hosts, and in this release a process group is on one: use "
            "hvd.init() with hvd.DistributedOptimizer or hvd.wrap, or another backend"
        )
