# SPDX-License-Identifier: Apache-2.0
"""
Where the processes of a data service find each other: one folder of sockets, and the addresses of this host.

The folder has the same path on every host. It holds the sockets of the servers that run there and, if servers of other
hosts are needed, sockets of the same names whose connections a relay carries to those hosts. So one address, such as
unix:/tmp/hvd-data-0123456789abcdef/w3, is right for every reader, near or far.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import socket
import stat
import struct
import time
from collections.abc import Iterator

# Not tempfile.gettempdir(), which may differ among hosts. Short, because a socket's path has at most 107 bytes.
BASE = pathlib.Path("/tmp")
PREFIX = "hvd-data-"
_ALIVE = "alive"
_YOUNG_S = 10.0
_SIOCGIFADDR = 0x8915


def folder(key: bytes) -> pathlib.Path:
    """
    Return the folder of the data service with this key.

    >>> from horovod.tensorflow.data import places
    >>> places.folder(b"k").name.startswith("hvd-data-")
    True
    """
    return BASE / (PREFIX + hashlib.sha256(b"folder " + key).hexdigest()[:16])


def address(key: bytes, name: str) -> str:
    """Return the address of a server, for TensorFlow and for `path_of`."""
    return f"unix:{folder(key) / name}"


def path_of(server: str) -> pathlib.Path:
    """
    Return the path of the socket in an address.

    >>> from horovod.tensorflow.data import places
    >>> places.path_of("unix:/tmp/hvd-data-0/w3").name
    'w3'
    """
    kind, _, path = server.partition(":")
    if kind != "unix":
        raise ValueError(f"the address {server!r} is none of this data service, which begin with unix:")
    return pathlib.Path(path)


def place(key: bytes) -> str:
    """Return an identity of the folder, or "" if there is none: processes with equal ones see the same sockets."""
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    try:
        seen = folder(key).stat()
    except FileNotFoundError:
        return ""
    return hashlib.sha256(f"{boot} {seen.st_dev} {seen.st_ino}".encode()).hexdigest()[:16]


@contextlib.contextmanager
def held(key: bytes) -> Iterator[pathlib.Path]:
    """Make the folder and hold it for the block; whoever leaves it last removes it."""
    sweep()
    made = folder(key)
    while True:
        with contextlib.suppress(FileExistsError):
            made.mkdir(mode=0o700)
        _check(made)
        try:
            alive = os.open(made / _ALIVE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:  # the last of others has just removed it
            continue
        fcntl.flock(alive, fcntl.LOCK_SH)
        if os.fstat(alive).st_nlink:
            break
        os.close(alive)
    try:
        yield made
    finally:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(made, ignore_errors=True)
        os.close(alive)


def _check(made: pathlib.Path) -> None:
    found = made.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{made} is not a folder of this user alone: remove it, or start the job anew")


def sweep() -> None:
    """Remove folders of this user that nobody holds: all processes of their jobs were killed."""
    for found in BASE.glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            seen = found.lstat()
            if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or time.time() - seen.st_mtime < _YOUNG_S:
                continue
            alive = os.open(found / _ALIVE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(found, ignore_errors=True)
            finally:
                os.close(alive)


def service_addresses() -> dict[str, list[str]]:
    """
    Return the addresses at which other hosts reach this one, by interface.

    They are those of HOROVOD_GLOO_IFACE if it is set, else those of the default route, else of the first interface
    that is up, else loopback.
    """
    wanted = os.environ.get("HOROVOD_GLOO_IFACE", "").split(",")[0]
    if wanted:
        found = _of_interface(wanted)
        if not found:
            raise ValueError(f"HOROVOD_GLOO_IFACE={wanted}: this host has no address at such an interface")
        return {wanted: found}
    routed = [one for one in (_routed("192.0.2.1"), _routed("2001:db8::1")) if one]
    if routed:
        return {"default": routed}
    for _, name in socket.if_nameindex():
        found = [] if name == "lo" else _of_interface(name)
        if found:
            return {name: found}
    return {"lo": ["127.0.0.1"]}


def _routed(target: str) -> str | None:
    """Return this host's address on the path to another one; nothing is sent."""
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            return probe.getsockname()[0]
    except OSError:
        return None


def _of_interface(name: str) -> list[str]:
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        found.append(socket.inet_ntoa(answer[20:24]))
    table = pathlib.Path("/proc/net/if_inet6")
    for line in table.read_text().splitlines() if table.exists() else ():
        digits, _, _, scope, _, interface = line.split()
        if interface == name and scope == "00":  # of all scopes, the global one
            found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return found
