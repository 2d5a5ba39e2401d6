# SPDX-License-Identifier: Apache-2.0
"""The other side of service.py: calls, each with a connection of its own, and the watch."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from horovod.tensorflow.data import places
from horovod.tensorflow.data.registry import TimeoutException
from horovod.tensorflow.data.wire import Channel, WireError, keep_alive

CONNECT_S = 5.0
_ERRORS = {
    "IndexError": IndexError,
    "ValueError": ValueError,
    "TimeoutException": TimeoutException,
    "TimeoutError": TimeoutError,
    "ConnectionAbortedError": ConnectionAbortedError,
    "ConnectionError": ConnectionError,
}


class ComputeClient:
    """
    Calls the registration service of a compute job. `TfDataServiceConfig.compute_client` makes one.

    Thread safety: any number of threads may call at once.

    >>> from horovod.tensorflow.data.client import ComputeClient
    >>> from horovod.tensorflow.data.service import ComputeService
    >>> with ComputeService(1, 1, b"0123456789abcdef") as service:
    ...     client = ComputeClient(service.addresses(), b"0123456789abcdef", timeout=5)
    ...     client.register_dispatcher(0, "unix:/tmp/hvd-data-0/d0")
    ...     client.wait_for_dispatcher_registration(0, timeout=5)
    'unix:/tmp/hvd-data-0/d0'
    """

    def __init__(self, addresses: Mapping[str, Any], key: bytes, timeout: float) -> None:
        self._addresses = [(str(host), int(port)) for found in addresses.values() for host, port in found]
        self._key = key
        self._timeout = timeout

    def ping(self) -> bool:
        """Return whether the service answers."""
        try:
            return bool(self.call("ping"))
        except (OSError, TimeoutError):
            return False

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str, owner: str = "") -> None:
        """Say where a dispatcher is; ValueError if it is registered at another address."""
        self.call("register_dispatcher", number=dispatcher_id, server=self._server(dispatcher_address, owner))

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float | None = None) -> str:
        """Return a dispatcher's address once it has registered; TimeoutException after the seconds given."""
        return self.dispatcher(dispatcher_id, self._timeout if timeout is None else timeout)["address"]

    def dispatcher(
        self, dispatcher_id: int, timeout: float | None, reader: tuple[int, int] | None = None
    ) -> dict[str, Any]:
        """Return all that is known of a dispatcher that `reader`, a run and a rank, has not left; None has no limit."""
        return self.call("wait_for_dispatcher", number=dispatcher_id, timeout=timeout, reader=reader)

    def register_worker_for_dispatcher(
        self, dispatcher_id: int, worker_id: int, address: str = "", owner: str = ""
    ) -> None:
        """Say that a worker serves a dispatcher."""
        self.call("register_worker", dispatcher=dispatcher_id, number=worker_id, server=self._server(address, owner))

    def wait_for_dispatcher_worker_registration(
        self, dispatcher_id: int, timeout: float | None = None
    ) -> list[dict[str, Any]]:
        """Return a dispatcher's workers once all of them have registered."""
        limit = self._timeout if timeout is None else timeout
        return self.call("wait_for_workers", dispatcher=dispatcher_id, timeout=limit)

    def shutdown(self) -> None:
        """End the compute job: its processes leave in order and its launcher ends with code 0."""
        self.call("shutdown")

    def wait_for_shutdown(self) -> None:
        """Return when somebody has called `shutdown`."""
        self.call("wait_for_shutdown")

    def call(self, name: str, **arguments: Any) -> Any:
        """Return the service's answer; errors of the service are raised here."""
        channel, _ = self.connect()
        try:
            channel.send({"call": name, **arguments})
            answer = channel.receive()
        finally:
            channel.close()
        if answer is None:
            raise ConnectionError(f"{self.name()} ended during the call of {name}")
        if "error" in answer:
            raise _ERRORS.get(answer["error"], RuntimeError)(answer["text"])
        return answer["result"]

    def connect(self) -> tuple[Channel, str]:
        """Return a connection to the service and this host's address on the path to it."""
        reasons = []
        for address in self._addresses:
            connection = None
            try:
                connection = socket.create_connection(address, CONNECT_S)
                keep_alive(connection)
                channel = Channel(connection, self._key, server=False)
                return channel, channel.own_address()
            except (OSError, WireError) as error:
                if connection is not None:
                    connection.close()
                reasons.append(f"{address[0]} port {address[1]}: {error or type(error).__name__}")
        raise ConnectionError(
            f"{self.name()} cannot be reached ({'; '.join(reasons)}): is the compute job running, and does this host "
            "reach its hosts? HOROVOD_GLOO_IFACE chooses the interface of the compute job"
        )

    def _server(self, address: str, owner: str) -> dict[str, Any]:
        return {"address": address, "place": places.place(self._key), "owner": owner}

    def name(self) -> str:
        """Return how sentences call the service."""
        return "the data service at " + " or ".join(f"{host} port {port}" for host, port in self._addresses)
