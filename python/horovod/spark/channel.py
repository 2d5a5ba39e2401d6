# SPDX-License-Identifier: Apache-2.0
"""
An authenticated connection between the driver and a Spark task.

Both sides prove that they know the run's token before either reads more than 64 bytes. After that every message carries
an HMAC-SHA256 under a key of this connection and direction, with a number, so that nothing that somebody on the path
changed, repeated or inserted is ever read. Messages are not encrypted.

    driver -> task   32 random bytes S
    task -> driver   32 random bytes C, HMAC(token, "task" S C)
    driver -> task   HMAC(token, "driver" S C)
    both ways        lengths of header and body, HMAC, header (JSON), body (bytes)
"""

from __future__ import annotations

import collections
import hmac
import json
import os
import socket
import struct
from typing import Any

NONCE = 32
MAC = 32
_LENGTHS = struct.Struct("!IQ")
_NUMBER = struct.Struct("!Q")
# Headers hold names, texts and tracebacks. A body, a function or a result, may have any size.
_MOST_HEADER = 1 << 24
_READ = 1 << 20


class RefusedError(ConnectionError):
    """The other side does not have this run's token, or a message was changed on its way."""


def _proof(token: bytes, who: str, server_nonce: bytes, client_nonce: bytes) -> bytes:
    return hmac.digest(token, who.encode() + server_nonce + client_nonce, "sha256")


def make_nonce() -> bytes:
    """Return the driver's first words."""
    return os.urandom(NONCE)


def answer(token: bytes, nonce: bytes, said: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the driver's proof and the keys for sending and receiving, if `said` is the proof of a task."""
    client_nonce, proof = said[:NONCE], said[NONCE:]
    if not hmac.compare_digest(proof, _proof(token, "task", nonce, client_nonce)):
        raise RefusedError("a connection did not prove that it knows the token of this run")
    keys = (_proof(token, f"from {side}", nonce, client_nonce) for side in ("driver", "task"))
    return (_proof(token, "driver", nonce, client_nonce), *keys)


def connect(address: tuple[str, int], token: bytes, timeout: float) -> Channel:
    """Return a task's connection to the driver at `address`."""
    connection = socket.create_connection(address, timeout)
    try:
        nonce = _exactly(connection, NONCE)
        own = make_nonce()
        connection.sendall(own + _proof(token, "task", nonce, own))
        if not hmac.compare_digest(_exactly(connection, MAC), _proof(token, "driver", nonce, own)):
            raise RefusedError(f"what listens at {address[0]}:{address[1]} is not the driver of this run")
    except BaseException:
        connection.close()
        raise
    to_driver, to_task = (_proof(token, f"from {side}", nonce, own) for side in ("task", "driver"))
    return Channel(connection, to_driver, to_task)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise RefusedError("the driver closed the connection: it has ended, or its token is another one")
        data += more
    return data


class Channel:
    """
    Messages over a connection; nothing here waits.

    Thread safety: none; one thread uses it.
    """

    def __init__(self, connection: socket.socket, out_key: bytes, in_key: bytes) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A host that was lost sends no end of the connection: the kernel asks it, 20 s in all.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 5)):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        self.socket = connection
        self._keys = out_key, in_key
        self._sent = self._received = 0
        self._out: collections.deque[memoryview] = collections.deque()
        self._in = bytearray()
        self.backlog = 0  # bytes that wait to be sent

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self.socket.fileno()

    def close(self) -> None:
        """End the connection; what is not yet sent is dropped."""
        self.socket.close()

    def put(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Add a message to those that `flush` sends."""
        head = json.dumps(header).encode()
        lengths = _LENGTHS.pack(len(head), len(body))
        mac = hmac.new(self._keys[0], _NUMBER.pack(self._sent) + lengths + head, "sha256")
        mac.update(body)
        self._sent += 1
        parts = [memoryview(lengths + mac.digest() + head)] + ([memoryview(body)] if body else [])
        self._out.extend(parts)
        self.backlog += sum(len(part) for part in parts)

    def flush(self) -> bool:
        """Send what the connection takes now; returns whether that was all. OSError if the other side is gone."""
        while self._out:
            try:
                count = self.socket.send(self._out[0])
            except BlockingIOError:
                return False
            self.backlog -= count
            if count == len(self._out[0]):
                self._out.popleft()
            else:
                self._out[0] = self._out[0][count:]
        return True

    def take(self) -> list[tuple[dict[str, Any], bytes]]:
        """Return the messages that have arrived whole. EOFError: the other side has closed; RefusedError: a forgery."""
        ended = False
        while True:
            try:
                data = self.socket.recv(_READ)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                ended = True
                break
            self._in += data
        messages = self._parse()
        if ended and not messages:
            raise EOFError("the connection was closed")
        return messages

    def _parse(self) -> list[tuple[dict[str, Any], bytes]]:
        messages = []
        at = 0
        while len(self._in) - at >= _LENGTHS.size + MAC:
            head_size, body_size = _LENGTHS.unpack_from(self._in, at)
            if head_size > _MOST_HEADER:
                raise RefusedError(
                    f"a message announces a header of {head_size} bytes; at most {_MOST_HEADER} are read"
                )
            start = at + _LENGTHS.size + MAC
            end = start + head_size + body_size
            if len(self._in) < end:
                break
            with memoryview(self._in) as view:
                mac = hmac.new(self._keys[1], _NUMBER.pack(self._received), "sha256")
                mac.update(view[at : at + _LENGTHS.size])
                mac.update(view[start:end])
                if not hmac.compare_digest(mac.digest(), bytes(view[at + _LENGTHS.size : start])):
                    raise RefusedError("a message was changed on its way")
                head, body = bytes(view[start : start + head_size]), bytes(view[start + head_size : end])
            self._received += 1
            messages.append((json.loads(head), body))
            at = end
        del self._in[:at]
        return messages
