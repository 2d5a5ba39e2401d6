# SPDX-License-Identifier: Apache-2.0
"""Where tasks connect to the driver: whoever does not prove in time that it knows the run's token is dropped."""

from __future__ import annotations

import dataclasses
import secrets
import selectors
import socket
import time
from typing import Callable

from horovod.spark import channel

# Seconds in which a connection must have proved that it knows the token, and how many may be at it at once.
_PROOF = 5
_MOST_STRANGERS = 256


@dataclasses.dataclass(eq=False)
class _Stranger:
    """A connection that has not yet proved that it knows the token."""

    connection: socket.socket
    nonce: bytes
    until: float
    said: bytes = b""


class Door:
    """
    A listener whose `admit` gets the channels of those that know the token. Entries of the selector are callables.

    Thread safety: none; the selector's thread uses it.
    """

    def __init__(
        self, bind: str, token: bytes, selector: selectors.BaseSelector, admit: Callable[[channel.Channel], None]
    ) -> None:
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        try:
            self._listener = socket.create_server((bind, 0), family=family, backlog=1024)
        except OSError as error:
            raise OSError(
                f"the driver cannot listen at {bind}: {error}; set spark.driver.bindAddress, or spark.driver.host, to "
                "an address of this machine"
            ) from error
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._token, self._selector, self._admit = token, selector, admit
        self._strangers: list[_Stranger] = []
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Listen no more."""
        for stranger in list(self._strangers):
            self._drop(stranger)
        self._selector.unregister(self._listener)
        self._listener.close()

    def deadlines(self) -> list[float]:
        """Return when `expire` has something to do."""
        return [stranger.until for stranger in self._strangers]

    def expire(self) -> None:
        """Drop the connections whose time is over."""
        for stranger in [one for one in self._strangers if one.until <= time.monotonic()]:
            self._drop(stranger)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if len(self._strangers) >= _MOST_STRANGERS:
            self._drop(secrets.choice(self._strangers))
        connection.setblocking(False)
        stranger = _Stranger(connection, channel.make_nonce(), time.monotonic() + _PROOF)
        self._strangers.append(stranger)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._hear(stranger))
        try:
            connection.send(stranger.nonce)
        except OSError:
            self._drop(stranger)

    def _hear(self, stranger: _Stranger) -> None:
        if stranger not in self._strangers:
            return
        try:
            data = stranger.connection.recv(channel.NONCE + channel.MAC - len(stranger.said))
            stranger.said += data
            if data and len(stranger.said) < channel.NONCE + channel.MAC:
                return
            proof, out_key, in_key = channel.answer(self._token, stranger.nonce, stranger.said)
            stranger.connection.send(proof)
        except OSError:
            return self._drop(stranger)
        self._selector.unregister(stranger.connection)
        self._strangers.remove(stranger)
        self._admit(channel.Channel(stranger.connection, out_key, in_key))

    def _drop(self, stranger: _Stranger) -> None:
        self._strangers.remove(stranger)
        self._selector.unregister(stranger.connection)
        stranger.connection.close()
