# SPDX-License-Identifier: Apache-2.0
"""How a rank hurts itself."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import threading
import time
from typing import Callable

from horovod.chaos import system
from horovod.chaos.plan import RUN, SELF, TIMER, Fault

# A limit on the size of files below what any shared memory needs and above what a log needs.
_SMALL_FILES = 1 << 20
_SMALL_ARENA = 768 << 10


class Injected(Exception):
    """The fault `exception`: what a user's script might raise."""


class Leave(Exception):
    """The fault `leave`: the script is to end here."""


class Injector:
    """
    The faults of this rank in one round. `tell` is told of each in the moment before it happens.

    Thread safety: one thread calls; timers are its own.
    """

    def __init__(self, faults: list[Fault], tell: Callable[..., None]) -> None:
        self._tell = tell
        self._own = [fault for fault in faults if fault.source in (SELF, TIMER)]
        self._timers: list[threading.Timer] = []
        self._operations = 0
        self._engine_less: dict[int, str] = {}
        self._undo = contextlib.ExitStack()
        self._undo_init = contextlib.ExitStack()

    def prepare(self) -> None:
        """Before the engine has anything: take away what it needs, note what is not its own."""
        for fault in self._own:
            if fault.kind == "shm":
                self._take_shared_memory(fault)
        self._engine_less = system.descriptors()

    def started(self) -> None:
        """Init is over, in whichever way: give back what was taken away for it alone."""
        self._undo_init.close()

    def enter(self, phase: str) -> None:
        """Now comes init, or shutdown."""
        for fault in [fault for fault in self._own if fault.phase == phase and fault.kind != "shm"]:
            self._come(fault)

    def operation(self) -> None:
        """Now comes one more operation."""
        for fault in [fault for fault in self._own if fault.phase == RUN and fault.at == self._operations]:
            self._come(fault)
        self._operations += 1

    def end(self) -> None:
        """Prevent what has not happened yet, and give back what was taken away."""
        for timer in self._timers:
            timer.cancel()
            timer.join()
        self._undo_init.close()
        self._undo.close()

    def _come(self, fault: Fault) -> None:
        if fault.source == SELF:
            return self._strike(fault)
        timer = threading.Timer(fault.after, self._strike, (fault,))
        timer.daemon = True
        self._timers.append(timer)
        timer.start()
        return None

    def _strike(self, fault: Fault) -> None:
        kind = fault.kind
        if kind == "sockets":
            return self._cut(fault)
        self._tell(fault)
        if kind in ("sigkill", "sigterm"):
            os.kill(os.getpid(), signal.Signals[kind.upper()])
        elif fault.detail == "null pointer":
            ctypes.string_at(0)
        elif kind == "sigsegv":
            os.kill(os.getpid(), signal.Signals[fault.detail])
        elif kind in ("core", "pipe", "disk"):
            if kind == "core":
                os.chdir(os.environ["TMPDIR"])
                resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            os.kill(os.getpid(), signal.SIGSEGV)
        elif kind == "descriptors":
            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            self._undo_init.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(system.descriptors()) - 1 + fault.at % 24, before[1]))
        elif kind == "exit":
            os._exit(7)
        elif kind == "leave":
            raise Leave
        elif kind == "exception":
            raise Injected(f"rank {fault.rank} was told to raise this")
        elif kind == "delay":
            time.sleep(fault.seconds)
        elif kind in ("stop", "freeze"):
            os.kill(os.getpid(), signal.SIGSTOP)
        return None

    def _cut(self, fault: Fault) -> None:
        found = [
            number
            for number, target in sorted(system.descriptors().items())
            if target.startswith("socket:") and self._engine_less.get(number) != target
        ]
        peers = {number: port for number in found if (port := peer_port(number)) is not None}
        chosen = found
        if fault.detail.endswith("one") and peers:
            chosen = [sorted(peers)[fault.at % len(peers)]]
        if not chosen:
            return self._tell(fault, skipped=True)
        self._tell(fault, ports=[peers[number] for number in chosen if number in peers])
        for number in chosen:
            with contextlib.suppress(OSError):  # the engine may have closed it meanwhile
                if fault.detail.startswith("close"):
                    os.close(number)
                else:
                    with socket.socket(fileno=os.dup(number)) as one:
                        one.shutdown(socket.SHUT_RDWR)
        return None

    def _take_shared_memory(self, fault: Fault) -> None:
        if fault.detail == "/dev/shm":
            try:
                system.own_shared_memory(4096)
            except OSError as error:
                return self._tell(fault, impossible=str(error))
            self._undo.callback(system.return_shared_memory)
            system.fill_shared_memory()
        elif fault.detail == "file size":
            before = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (_SMALL_FILES, before[1]))
            self._undo.callback(resource.setrlimit, resource.RLIMIT_FSIZE, before)
        else:
            os.environ["HOROVOD_ARENA_BYTES"] = str(_SMALL_ARENA)
        return self._tell(fault)


def peer_port(descriptor: int) -> int | None:
    """Return the other side's port of a TCP connection; None for anything else."""
    return _port(descriptor, socket.socket.getpeername)


def own_ports(descriptors: dict[int, str]) -> list[int]:
    """Return this side's ports of all TCP connections among these descriptors."""
    ports = (_port(number, socket.socket.getsockname) for number, target in descriptors.items() if "socket:" in target)
    return [port for port in ports if port is not None]


def _port(descriptor: int, ask: Callable[[socket.socket], object]) -> int | None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as one:
        name = ask(one)
        if one.family in (socket.AF_INET, socket.AF_INET6) and isinstance(name, tuple):
            return int(name[1])
    return None
