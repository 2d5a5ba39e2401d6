# SPDX-License-Identifier: Apache-2.0
"""What the kernel offers and Python's library does not: mount namespaces, death signals, and counts of a process."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import pathlib
import re
import signal
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Callable

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
_MS_REC, _MS_PRIVATE = 1 << 14, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SHARED_MEMORY = b"/dev/shm"

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def die_with_parent(parent: int) -> None:
    """Have this process killed when its parent ends. `parent` is the parent's id as it was before the fork."""
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def fork(main: Callable[[], None], keep: Iterable[int]) -> int:
    """
    Run a function in a child process of its own and return the child's id.

    The child has no descriptors but `keep` and the standard ones, dies with its parent, and leaves Ctrl-C to it.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        die_with_parent(parent)
        atexit._clear()  # what the parent wants to do at its end is not the child's to do
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for other in set(descriptors()) - {0, 1, 2, *keep}:
            with contextlib.suppress(OSError):
                os.close(other)
        main()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent ends, so that none can get lost."""
    _call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def own_shared_memory(size: int) -> None:
    """Give this process a /dev/shm of its own, of `size` bytes. OSError where the system does not allow that."""
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", _CLONE_NEWNS)
    except PermissionError:
        _call("unshare", _CLONE_NEWNS | _CLONE_NEWUSER)
        pathlib.Path("/proc/self/setgroups").write_text("deny")
        pathlib.Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        pathlib.Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    _call("mount", b"tmpfs", _SHARED_MEMORY, b"tmpfs", 0, f"size={size}".encode())


def unshare_network() -> None:
    """Move the calling thread into a network of its own, without any device that is up."""
    _call("unshare", _CLONE_NEWNET)


def enter_network(descriptor: int) -> None:
    """Move the calling thread into the network that an open file stands for."""
    _call("setns", descriptor, _CLONE_NEWNET)


def return_shared_memory() -> None:
    """Undo the last `own_shared_memory`."""
    _call("umount2", _SHARED_MEMORY, 0)


def fill_shared_memory() -> None:
    """Leave no room in /dev/shm."""
    with contextlib.suppress(OSError), open(os.fsdecode(_SHARED_MEMORY) + "/full", "wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def shared_files() -> list[str]:
    """Return what is in /dev/shm now."""
    return sorted(os.listdir(_SHARED_MEMORY.decode()))


def descriptors() -> dict[int, str]:
    """Return this process's open files: what each descriptor stands for."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that listed them is gone
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def resident_bytes() -> tuple[int, int]:
    """Return how much memory this process has in use: private, and shared with other processes."""
    lines = dict(line.split(":") for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    private, shared = (int(lines[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))
    return private, shared


# The library makes one when it first has files to write, and keeps it for the life of the process.
_KEPT_THREAD = "hvd-flight"


def thread_count() -> int:
    """Return the number of threads of this process, whoever made them, without one that the library keeps."""
    names = []
    for task in pathlib.Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            names.append((task / "comm").read_text().strip())
    return len(names) - (_KEPT_THREAD in names)


def children() -> list[int]:
    """Return the processes that this one is the parent of."""
    with contextlib.suppress(OSError):
        return [int(one) for one in pathlib.Path("/proc/thread-self/children").read_text().split()]
    return []


@dataclass(frozen=True)
class Traces:
    """What an engine could leave in its process."""

    descriptors: tuple[str, ...]
    threads: int
    shared_mappings: int

    @staticmethod
    def look() -> Traces:
        """Take stock."""
        maps = pathlib.Path("/proc/self/maps").read_text()
        # Numbers of sockets and pipes say nothing to anybody; files may be deleted by others.
        kinds = tuple(sorted(re.sub(r"\[.*| \(deleted\)", "", target) for target in descriptors().values()))
        return Traces(kinds, thread_count(), maps.count("/memfd:"))

    def more_than(self, before: Traces) -> list[str]:
        """Say what is here that was not there before."""
        found = []
        left = list(before.descriptors)
        extra = [one for one in self.descriptors if one not in left or left.remove(one)]
        if extra:
            found.append(f"descriptors {extra}")
        if self.threads > before.threads:
            found.append(f"{self.threads - before.threads} threads")
        if self.shared_mappings > before.shared_mappings:
            found.append(f"{self.shared_mappings - before.shared_mappings} mappings of shared memory")
        return found
