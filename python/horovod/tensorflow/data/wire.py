# SPDX-License-Identifier: Apache-2.0
"""
Authenticated lines of JSON between two processes that know the same key.

Both sides prove that they know the key before either reads a message. Each message then carries an authentication code
over its direction, its number and its text, so nobody on the path can change, repeat, reorder or reflect one. Nothing
is unpickled. The text itself is readable on the path; it holds addresses and numbers, never the key.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import time
from typing import Any

HANDSHAKE_S = 5.0
MOST_BYTES = 64 * 1024
_NONCE_BYTES = 32


class WireError(ConnectionError):
    """The other side does not know the key, or what it sent is not what this protocol allows."""


def keep_alive(connection: socket.socket) -> None:
    """Have the kernel end a connection whose host does not answer for about 20 s, also one without traffic."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    settings = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 5, "TCP_USER_TIMEOUT": 20_000}
    for name, value in settings.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def proof(key: bytes, purpose: str, *parts: bytes) -> bytes:
    """
    Return the code that only who knows the key can make of these parts.

    >>> from horovod.tensorflow.data.wire import proof
    >>> proof(b"k", "client", b"a", b"bc") == proof(b"k", "client", b"ab", b"c")
    False
    """
    text = b"".join(len(part).to_bytes(4, "big") + part for part in (purpose.encode(), *parts))
    return hmac.new(key, text, hashlib.sha256).digest()


class Channel:
    """One connection after its handshake. Thread safety: one thread sends and one thread receives."""

    def __init__(self, connection: socket.socket, key: bytes, server: bool) -> None:
        self._connection = connection
        self._buffer = b""
        self._deadline: float | None = time.monotonic() + HANDSHAKE_S
        self._own, self._other = ("server", "client") if server else ("client", "server")
        self._sent = self._received = 0
        self._session = self._shake_hands(key, server)
        self._deadline = None
        connection.settimeout(None)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        text = json.dumps(message).encode()
        if len(text) > MOST_BYTES - 128:
            raise ValueError(f"a message of {len(text)} bytes is longer than {MOST_BYTES - 128}")
        code = proof(self._session, self._own, self._sent.to_bytes(8, "big"), text)
        self._sent += 1
        self._connection.sendall(code.hex().encode() + b" " + text + b"\n")

    def receive(self, timeout: float | None = None) -> dict[str, Any] | None:
        """Return the next message, or None when the other side has closed; TimeoutError after the seconds given."""
        self._deadline = None if timeout is None else time.monotonic() + timeout
        line = self._line()
        if line is None:
            return None
        code, _, text = line.partition(b" ")
        wanted = proof(self._session, self._other, self._received.to_bytes(8, "big"), text)
        if not hmac.compare_digest(code, wanted.hex().encode()):
            raise WireError("a message of the data service was changed on its way")
        self._received += 1
        return _object(text)

    def own_address(self) -> str:
        """Return this host's end of the connection."""
        return self._connection.getsockname()[0]

    def close(self) -> None:
        """Close the connection; a thread that receives returns."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _shake_hands(self, key: bytes, server: bool) -> bytes:
        own = secrets.token_bytes(_NONCE_BYTES)
        if server:
            self._say(nonce=own.hex())
            answer = self._hear("nonce", "proof")
            nonces = (own, answer["nonce"])
        else:
            nonces = (self._hear("nonce")["nonce"], own)
            self._say(nonce=own.hex(), proof=proof(key, "client hello", *nonces).hex())
            answer = self._hear("proof")
        if not hmac.compare_digest(answer["proof"], proof(key, f"{self._other} hello", *nonces)):
            raise WireError("the other side does not know the key of this data service")
        if server:
            self._say(proof=proof(key, "server hello", *nonces).hex())
        return proof(key, "session", *nonces)

    def _say(self, **fields: str) -> None:
        self._connection.sendall(json.dumps(fields).encode() + b"\n")

    def _hear(self, *fields: str) -> dict[str, bytes]:
        line = self._line()
        if line is None:
            raise WireError("the other side closed the connection before it proved that it knows the key")
        message = _object(line)
        try:
            return {field: bytes.fromhex(message[field]) for field in fields}
        except (KeyError, TypeError, ValueError):
            raise WireError("the other side does not speak the data service's protocol") from None

    def _line(self) -> bytes | None:
        while b"\n" not in self._buffer:
            if len(self._buffer) > MOST_BYTES:
                raise WireError(f"a message is longer than {MOST_BYTES} bytes")
            if self._deadline is not None:
                left = self._deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the other side of the data service does not answer")
                self._connection.settimeout(left)
            else:
                self._connection.settimeout(None)
            piece = self._connection.recv(16384)
            if not piece:
                return None
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise WireError("the other side does not speak the data service's protocol")
    return found
