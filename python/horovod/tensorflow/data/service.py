# SPDX-License-Identifier: Apache-2.0
"""
The registration service of a compute job: where dispatchers and workers are, who reads, and when to end.

It runs in rank 0 of the compute job. Every process of the compute job and of the training jobs keeps one connection
open, its watch: the service sends events over it, and its end says that the process is gone.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import sys
import threading
import time
from typing import Any, Callable

from horovod.tensorflow.data import places
from horovod.tensorflow.data.registry import Registry
from horovod.tensorflow.data.wire import Channel, WireError, keep_alive

_OPEN_S = 10.0
_CLOSE_S = 1.0
_REPORT_S = 1.0
# Connections that have not yet proved that they know the key. One more displaces another of them.
MOST_STRANGERS = 1024


class Watch:
    """The open connection to one process; `owner` is such as "compute 3" or "training 0"."""

    def __init__(self, channel: Channel, owner: str, rank: int, training: bool, run: int) -> None:
        self.owner = owner
        self.rank = rank
        self.training = training
        self.run = run
        self.round_robin = False
        self.elements = 0
        self.orderly = False
        self._channel = channel
        self._lock = threading.Lock()

    def push(self, event: dict[str, Any]) -> None:
        """Send an event; a process that is gone does not get it."""
        with self._lock, contextlib.suppress(OSError):
            self._channel.send(event)


class ComputeService:
    """
    Serves the registry of one compute job until `close`.

    >>> from horovod.tensorflow.data.service import ComputeService
    >>> with ComputeService(dispatchers=1, workers_per_dispatcher=4, key=b"0123456789abcdef") as service:
    ...     sorted(service.addresses()) != []
    True
    """

    def __init__(self, dispatchers: int, workers_per_dispatcher: int, key: bytes) -> None:
        self.registry = Registry(dispatchers, workers_per_dispatcher)
        self._key = key
        self._listeners: list[socket.socket] = []
        self._addresses: dict[str, list[list[Any]]] = {}
        self._changed = threading.Condition()
        self._watches: list[Watch] = []
        self._gates: dict[str, dict[str, Any]] = {}
        self._in_turn: dict[int, set[int]] = {}  # by run, the ranks that have begun to read in turn
        self._strangers: set[socket.socket] = set()
        self._elements_of_gone = 0
        self._closed = False
        self._answering = 0
        for interface, found in places.service_addresses().items():
            self._addresses[interface] = [self._listen(one) for one in found]
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def __enter__(self) -> ComputeService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def addresses(self) -> dict[str, list[list[Any]]]:
        """Return host and port of the service at each interface, for TfDataServiceConfig."""
        return self._addresses

    def close(self) -> None:
        """End the service. Watches that are open end without an answer."""
        with self._changed:  # who called `shutdown` gets its answer
            self._changed.wait_for(lambda: self._answering == 0, _CLOSE_S)
            self._closed = True
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def elements(self) -> tuple[int, int]:
        """Return how many elements all readers have got, and how many readers there are."""
        with self._changed:
            reading = [watch for watch in self._watches if watch.training]
            return self._elements_of_gone + sum(watch.elements for watch in reading), len(reading)

    def _listen(self, address: str) -> list[Any]:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        listener.bind((address, 0))
        listener.listen(1024)
        self._listeners.append(listener)
        return [address, listener.getsockname()[1]]

    def _accept(self, listener: socket.socket) -> None:
        while not self._closed:
            try:
                connection, _ = listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.1)  # no descriptor is free: one will be
                continue
            with self._changed, contextlib.suppress(OSError):
                displaced = len(self._strangers) >= MOST_STRANGERS and secrets.choice(list(self._strangers))
                self._strangers.add(connection)
                if displaced:
                    self._strangers.remove(displaced)
                    displaced.shutdown(socket.SHUT_RDWR)  # its thread ends
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, WireError, TimeoutError, KeyError, TypeError):
            try:
                connection.settimeout(5.0)
                keep_alive(connection)
                channel = Channel(connection, self._key, server=True)
            finally:
                with self._changed:
                    self._strangers.discard(connection)
            message = channel.receive(5.0)
            if message is None:
                return
            if message["call"] == "watch":
                self._watch(channel, message)
                return
            with self._changed:
                self._answering += 1
            try:
                channel.send(self._answer(message))
            finally:
                with self._changed:
                    self._answering -= 1
                    self._changed.notify_all()

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        arguments = {name: value for name, value in message.items() if name != "call"}
        try:
            return {"result": self._calls()[message["call"]](**arguments)}
        except Exception as error:  # whatever it is, who asked hears of it
            return {"error": type(error).__name__, "text": str(error)}

    def _calls(self) -> dict[str, Callable[..., Any]]:
        registry = self.registry
        return {
            "ping": lambda: True,
            "register_dispatcher": self._register,
            "wait_for_dispatcher": registry.wait_for_dispatcher,
            "forget_dispatcher": self._forget,
            "register_worker": registry.register_worker,
            "wait_for_workers": registry.wait_for_workers,
            "leave": registry.leave,
            "wait_left": registry.wait_left,
            "shutdown": self._shut_down,
            "wait_for_shutdown": registry.wait_for_shutdown,
            "reach": self._reach,
            "opened": self._opened,
            "reads_in_turn": self._reads_in_turn,
            "missing_in_turn": self._missing_in_turn,
            "agree": registry.agree,
        }

    def _shut_down(self) -> None:
        self.registry.shut_down()
        with self._changed:
            self._changed.notify_all()
        self._push({"event": "shutdown"}, lambda watch: True)

    def _register(self, number: int, server: dict[str, Any]) -> None:
        self.registry.register_dispatcher(number, server)
        self._push({"event": "dispatcher", "number": number, "server": server}, lambda watch: not watch.training)

    def _forget(self, number: int) -> None:
        self.registry.forget_dispatcher(number)
        self._push({"event": "forgotten", "dispatcher": number}, lambda watch: not watch.training)

    def _push(self, event: dict[str, Any], to: Callable[[Watch], bool]) -> None:
        with self._changed:
            chosen = [watch for watch in self._watches if to(watch)]
        for watch in chosen:
            watch.push(event)

    def _watch(self, channel: Channel, message: dict[str, Any]) -> None:
        training = message["training"]
        run = self.registry.join_run(message["hint"], message["rank"], message["size"]) if training else 0
        owner = f"{message['owner']} of run {run}" if training else message["owner"]
        watch = Watch(channel, owner, message["rank"], training, run)
        watch.push({"result": {"run": run, "owner": owner}})
        with self._changed:
            self._watches.append(watch)
        for number, server in ({} if training else self.registry.known_dispatchers()).items():
            watch.push({"event": "dispatcher", "number": number, "server": server})
        if self.registry.is_shut_down():
            watch.push({"event": "shutdown"})
        try:
            while True:
                said = channel.receive()
                if said is None:
                    break
                watch.orderly |= "bye" in said
                watch.elements += int(said.get("elements", 0))
        finally:
            self._gone(watch)

    def _gone(self, watch: Watch) -> None:
        with self._changed:
            self._watches.remove(watch)
            self._gates.pop(watch.owner, None)
            self._elements_of_gone += watch.elements
            self._changed.notify_all()
        if not watch.training and not watch.orderly and not self.registry.is_shut_down():
            self._push({"event": "compute lost", "owner": watch.owner}, lambda other: other.training)
        if watch.training:
            for number in self.registry.dispatchers_of(watch.owner):  # of a process that was killed
                self._forget(number)
            self.registry.leave_run(watch.run, watch.rank, lost=not watch.orderly)
            if watch.round_robin:
                gone = {"event": "consumer gone", "rank": watch.rank, "orderly": watch.orderly}
                self._push(gone, lambda other: other.round_robin and other.run == watch.run)

    def _reads_in_turn(self, owner: str) -> None:
        with self._changed:
            for watch in self._watches:
                if watch.owner == owner:
                    watch.round_robin = True
                    self._in_turn.setdefault(watch.run, set()).add(watch.rank)
            self._changed.notify_all()

    def _missing_in_turn(self, run: int, size: int, timeout: float) -> list[int]:
        """Return which ranks of a run do not read in turn yet, at the latest after the seconds given."""
        with self._changed:
            come = self._in_turn.setdefault(run, set())
            self._changed.wait_for(lambda: len(come) >= size or self.registry.is_shut_down(), timeout)
            return [] if self.registry.is_shut_down() else sorted(set(range(size)) - come)

    def _reach(self, owner: str) -> dict[str, Any]:
        """Return the gate of a process, which is asked to open one if it has none."""
        self._push({"event": "open"}, lambda watch: watch.owner == owner and owner not in self._gates)
        deadline = time.monotonic() + _OPEN_S
        with self._changed:
            while owner not in self._gates:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"the process {owner} of the data service opened no data port in {_OPEN_S:g} s")
                self._changed.wait(left)
            gate = self._gates[owner]
            if "error" in gate:
                raise ConnectionError(f"{owner} of the data service: {self._gates.pop(owner)['error']}")
            return gate

    def _opened(self, owner: str, gate: dict[str, Any]) -> None:
        with self._changed:
            self._gates[owner] = gate
            self._changed.notify_all()


def report(service: ComputeService, ended: threading.Event) -> None:
    """
    Write one line, again and again over itself, with how many elements readers get; until `ended` is set.

    Training jobs that run dispatchers and distribute their data sets themselves count no elements.
    """
    before, shown = 0, False
    while not ended.wait(_REPORT_S):
        now, readers = service.elements()
        if readers or now != before:
            rate = (now - before) / _REPORT_S
            text = f"data service: {readers} readers"
            if now:
                text += f", {now} elements, {rate:.0f} elements/s"
            sys.stderr.write(f"\r{text:<70}")
            sys.stderr.flush()
            shown = True
        before = now
    if shown:
        now, _ = service.elements()
        text = f"data service: {now} elements in all" if now else "data service: ended"
        sys.stderr.write(f"\r{text:<70}\n")
        sys.stderr.flush()
