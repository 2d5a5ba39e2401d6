# SPDX-License-Identifier: Apache-2.0
"""Servers of other hosts, reached at a socket of this one, and this host's servers for others: see relay_process.py."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Callable

from horovod.tensorflow.data import places, relay_process
from horovod.tensorflow.data.client import ComputeClient
from horovod.tensorflow.data.config import TfDataServiceConfig

CONNECT_S = 5.0
_POLL_S = 0.05


class Relay:
    """
    The relay process of a rank, which is started when a first server of another host, or a gate, is needed.

    If it dies it is started again, with the same sockets and port. Thread safety: all methods by any thread.
    """

    def __init__(self, config: TfDataServiceConfig, failed: Callable[[str], None]) -> None:
        self._config = config
        self._failed = failed
        self._lock = threading.RLock()
        self._process: subprocess.Popen | None = None
        self._stopping = False
        self._commands: list[dict[str, Any]] = []
        self._gate: dict[str, Any] | None = None

    def reach(self, client: ComputeClient, server: dict[str, Any]) -> None:
        """Return when a connection to a server has been made; ConnectionError with what to do after 5 s."""
        path = places.path_of(server["address"])
        if server["place"] == places.place(self._config.key):
            _connect(path, server, self._config.timeout)
            return
        with self._lock:
            if any(command.get("path") == str(path) for command in self._commands):
                return
        gate = client.call("reach", owner=server["owner"])
        encrypt = os.environ.get("HOROVOD_ENCRYPT", "0") == "1"
        if encrypt and not gate["encrypt"]:
            raise ConnectionError(
                f"{server['owner']} of the data service sends its data as plain text, and HOROVOD_ENCRYPT=1 is set "
                "here: start the compute job with HOROVOD_ENCRYPT=1, too"
            )
        command = {"do": "carry", "path": str(path), **gate}
        answer = self._ask(command)
        if "error" in answer:
            raise ConnectionError(
                f"{path.name} of the data service ({server['owner']}) cannot be reached from this host at "
                f"{gate['host']} port {gate['port']}: {answer['error']}. A firewall may close that port, or "
                "HOROVOD_GLOO_IFACE must name the interface that both hosts share"
            )

    def drop(self, address: str) -> None:
        """Carry a socket no longer: its server is gone, and another one may come in its place."""
        path = str(places.path_of(address))
        with self._lock:
            known = [command for command in self._commands if command.get("path") == path]
            if known:
                self._say({"do": "drop", "path": path})
                self._commands = [command for command in self._commands if command not in known]

    def open_gate(self, host: str) -> dict[str, Any]:
        """Return where other hosts reach this host's servers; the port is opened if it is not."""
        with self._lock:
            if self._gate is None:
                encrypt = os.environ.get("HOROVOD_ENCRYPT", "0") == "1"
                command = {"do": "gate", "host": host, "port": 0, "encrypt": encrypt}
                answer = self._ask(command)
                if "error" in answer:
                    raise ConnectionError(f"no data port can be opened at {host}: {answer['error']}")
                command["port"] = answer["port"]  # the same one after a restart
                self._gate = {"host": host, "port": answer["port"], "encrypt": encrypt}
            return self._gate

    def answer(self, client: ComputeClient, owner: str, host: str) -> None:
        """Tell the service where other hosts reach this host's servers, or why they do not."""
        try:
            gate = self.open_gate(host)
        except OSError as error:
            gate = {"error": str(error)}
        with contextlib.suppress(OSError):  # a service that is gone has nobody who asks
            client.call("opened", owner=owner, gate=gate)

    def hush(self) -> None:
        """Report servers that cannot be reached no longer: they have ended in order."""
        with self._lock:
            if self._process is not None:
                self._say({"do": "hush"})

    def stop(self) -> None:
        """End the relay process."""
        with self._lock:
            self._stopping = True
            process = self._process
        if process is not None:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait()

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if self._process is None:
                self._start()
            answer = self._say(command)
            if "error" not in answer:
                self._commands.append(command)
            return answer

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", relay_process.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        folder = str(places.folder(self._config.key))
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"key": self._config.key.hex(), "folder": folder}) + "\n")
        threading.Thread(target=self._supervise, args=(self._process,), daemon=True).start()

    def _say(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())
        return {"error": "the relay process ended"}

    def _supervise(self, process: subprocess.Popen) -> None:
        process.wait()
        with self._lock:
            if self._stopping:
                return
            self._start()
            for command in self._commands:
                answer = self._say(command)
                if "error" in answer:
                    self._failed(f"the data service's relay cannot be started again: {answer['error']}")
                    self._stopping = True
                    return


def _connect(path: Any, server: dict[str, Any], timeout: float) -> None:
    """Connect to a server of this host; one whose socket refuses has died, and its supervisor starts it again."""
    deadline = time.monotonic() + timeout
    while True:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(CONNECT_S)
            try:
                probe.connect(str(path))
                return
            except OSError as error:
                if not isinstance(error, ConnectionRefusedError) or time.monotonic() > deadline:
                    raise ConnectionError(
                        f"{path.name} of the data service ({server['owner']}) does not answer at {path}: {error}"
                    ) from None
        time.sleep(_POLL_S)
