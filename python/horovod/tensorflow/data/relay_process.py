# SPDX-License-Identifier: Apache-2.0
"""
Carries the sockets of servers between hosts: a process of its own, run as a script. The supervisor is in relay.py.

Standard input has a line of JSON for each command, standard output one for each answer; the end of the input ends the
process. "gate" opens a data port for connections to the sockets of this host's folder; "carry" makes a socket here
whose connections go to one of another host, by that host's gate. Both sides of each connection prove that they know the
key. With TLS, which HOROVOD_ENCRYPT=1 asks for, the proof covers the TLS session, so nobody can stand in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import socket
import ssl
import sys
import threading
import time
from typing import Any

_HANDSHAKE_S = 5.0
# How long a server may be out of reach until there is a line on stderr, and when the next one follows.
_PATIENCE_S = 4.0
_AGAIN_S = 60.0
_PIECE = 256 * 1024
_NONCE = 32
_PROOF = 32


def proof(key: bytes, purpose: str, *parts: bytes) -> bytes:
    """Return the code that only who knows the key can make."""
    text = b"".join(len(part).to_bytes(4, "big") + part for part in (purpose.encode(), *parts))
    return hmac.new(key, text, hashlib.sha256).digest()


def tls(server: bool) -> ssl.SSLContext:
    """
    Return a context without certificates: a fresh key for each connection, which the proofs authenticate.

    TLS 1.2, because only there both sides know one value that names the session (tls-unique of RFC 5929).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET
    context.set_ciphers("AECDH+AES:@SECLEVEL=0")
    return context


class Relay:
    """All gates and carried sockets of one process."""

    def __init__(self, key: bytes, folder: str) -> None:
        self._key = key
        self._folder = folder
        self._unreached: dict[str, float] = {}  # by name, since when a server is not reached, or when to say so again
        self._hushed = False
        self._kept: list[Any] = []
        self._carried: dict[str, tuple[int, asyncio.Future]] = {}

    async def gate(self, host: str, port: int, encrypt: bool) -> dict[str, Any]:
        """Open the data port at one address of this host."""
        server = await asyncio.start_server(
            lambda reader, writer: self._guarded(self._admit, reader, writer, encrypt),
            host,
            port,
            limit=_PIECE,
            ssl=tls(server=True) if encrypt else None,
            ssl_handshake_timeout=_HANDSHAKE_S if encrypt else None,
        )
        self._kept.append(server)
        return {"port": server.sockets[0].getsockname()[1]}

    async def carry(self, path: str, host: str, port: int, encrypt: bool) -> dict[str, Any]:
        """Make the socket at `path` lead to the one of that name behind a gate, after a first connection to it."""
        name = os.path.basename(path)
        _, writer = await self._dial(host, port, encrypt, name)
        writer.close()
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # Another process of this host carries it; this one follows when that one ends.
            listening = asyncio.ensure_future(self._follow(lock, path, host, port, encrypt))
        else:
            listening = asyncio.ensure_future(self._listen(path, host, port, encrypt))
            await listening
        self._carried[path] = lock, listening
        return {}

    async def drop(self, path: str) -> dict[str, Any]:
        """Carry a socket no longer."""
        lock, listening = self._carried.pop(path)
        if listening.done():
            listening.result().close()
        else:
            listening.cancel()
        os.close(lock)
        return {}

    async def _follow(self, lock: int, path: str, host: str, port: int, encrypt: bool) -> asyncio.AbstractServer:
        taken = asyncio.get_running_loop().create_future()

        def wait(loop: asyncio.AbstractEventLoop) -> None:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(taken.set_result, None)

        threading.Thread(target=wait, args=(asyncio.get_running_loop(),), daemon=True).start()
        await taken
        return await self._listen(path, host, port, encrypt)

    async def _listen(self, path: str, host: str, port: int, encrypt: bool) -> asyncio.AbstractServer:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

        name = os.path.basename(path)
        server = f"{name} of the data service at {host} port {port}"

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                other_reader, other_writer = await self._dial(host, port, encrypt, name)
            except (OSError, EOFError, asyncio.TimeoutError) as error:
                self._report(server, error)
                raise
            self._unreached.pop(server, None)
            await _splice(reader, writer, other_reader, other_writer)

        return await asyncio.start_unix_server(
            lambda reader, writer: self._guarded(forward, reader, writer), path, limit=_PIECE
        )

    async def hush(self) -> dict[str, Any]:
        """Report servers that are not reached no longer."""
        self._hushed = True
        return {}

    def _report(self, server: str, error: Exception) -> None:
        """Say on stderr that a server is not reached, if that lasts: TensorFlow tries again and says nothing."""
        now = time.monotonic()
        if now < self._unreached.setdefault(server, now + _PATIENCE_S) or self._hushed:
            return
        self._unreached[server] = now + _AGAIN_S
        why = str(error) or type(error).__name__
        sys.stderr.write(f"hvd data service: {server} is not reached any more, and this process waits for it: {why}\n")
        sys.stderr.flush()

    async def _dial(self, host: str, port: int, encrypt: bool, name: str) -> tuple[Any, Any]:
        more = {"ssl": tls(server=False), "server_hostname": ""} if encrypt else {}
        return await asyncio.wait_for(self._greet(host, port, name, more), _HANDSHAKE_S)

    async def _greet(self, host: str, port: int, name: str, more: dict[str, Any]) -> tuple[Any, Any]:
        reader, writer = await asyncio.open_connection(host, port, limit=_PIECE, **more)
        _keep_alive(writer)
        try:
            theirs, own = await reader.readexactly(_NONCE), secrets.token_bytes(_NONCE)
            session = (_binding(writer), theirs, own, name.encode())
            writer.write(own + proof(self._key, "gate client", *session) + bytes([len(name)]) + name.encode())
            if not hmac.compare_digest(await reader.readexactly(_PROOF), proof(self._key, "gate server", *session)):
                raise ConnectionError("what answers there does not know the key of this data service")
        except BaseException:
            writer.close()
            raise
        return reader, writer

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, encrypt: bool) -> None:
        _keep_alive(writer)
        name = await asyncio.wait_for(self._examine(reader, writer), _HANDSHAKE_S)
        inner = await asyncio.open_unix_connection(os.path.join(self._folder, name), limit=_PIECE)
        await _splice(reader, writer, *inner)

    async def _examine(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        own = secrets.token_bytes(_NONCE)
        writer.write(own)
        theirs = await reader.readexactly(_NONCE)
        said = await reader.readexactly(_PROOF)
        name = await reader.readexactly((await reader.readexactly(1))[0])
        session = (_binding(writer), own, theirs, name)
        if not hmac.compare_digest(said, proof(self._key, "gate client", *session)):
            raise ConnectionError("a stranger")
        if not name.isalnum():
            raise ConnectionError("no name of a server")
        writer.write(proof(self._key, "gate server", *session))
        return name.decode()

    async def _guarded(self, handle: Any, reader: Any, writer: asyncio.StreamWriter, *more: Any) -> None:
        try:
            await handle(reader, writer, *more)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, UnicodeDecodeError):
            pass
        finally:
            writer.close()


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Have the kernel end a connection whose host does not answer for about 20 s, as wire.py does."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    settings = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 5, "TCP_USER_TIMEOUT": 20_000}
    for option, value in settings.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _binding(writer: asyncio.StreamWriter) -> bytes:
    """Return what names the TLS session, or nothing without TLS."""
    session = writer.get_extra_info("ssl_object")
    return (session.get_channel_binding("tls-unique") or b"") if session is not None else b"plain"


async def _splice(*ends: Any) -> None:
    """Move bytes both ways until either side ends."""
    reader, writer, other_reader, other_writer = ends
    tasks = [asyncio.ensure_future(_pump(*way)) for way in ((reader, other_writer), (other_reader, writer))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        writer.close()
        other_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while True:
            piece = await reader.read(_PIECE)
            if not piece:
                return
            writer.write(piece)
            await writer.drain()


async def serve() -> None:
    """Obey the commands on standard input, one after the other."""
    loop = asyncio.get_running_loop()
    first = json.loads(await loop.run_in_executor(None, sys.stdin.readline))
    relay = Relay(bytes.fromhex(first["key"]), first["folder"])
    while True:
        line = await loop.run_in_executor(None, sys.stdin.readline)
        if not line:
            os._exit(0)
        command = json.loads(line)
        try:
            answer = await getattr(relay, command.pop("do"))(**command)
        except asyncio.TimeoutError:
            answer = {"error": f"nothing answers within {_HANDSHAKE_S:g} s"}
        except (OSError, EOFError) as error:
            answer = {"error": str(error) or type(error).__name__}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve())
