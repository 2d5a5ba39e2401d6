# SPDX-License-Identifier: Apache-2.0
"""A small file system that can be frozen: whoever writes to it waits, as with a file server that hangs. Needs root."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import subprocess

_FIFREEZE, _FITHAW = 0xC0045877, 0xC0045878
_BYTES = 16 << 20


class Disk:
    """A file system in a file, mounted at `folder` in this process's mount namespace, and unmounted with that."""

    def __init__(self, place: pathlib.Path) -> None:
        """OSError: the system does not allow that."""
        image, self.folder = place / "image", place / "disk"
        self.folder.mkdir(parents=True)
        with image.open("wb") as file:
            file.truncate(_BYTES)
        for command in (["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, self.folder]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise OSError(f"{command[0]}: {done.stderr.strip()}")

    def freeze(self) -> None:
        """Have every writer wait."""
        self._ask(_FIFREEZE)

    def thaw(self) -> None:
        """Let writers go on, if they wait."""
        with contextlib.suppress(OSError):
            self._ask(_FITHAW)

    def _ask(self, request: int) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, request, 0)
        finally:
            os.close(descriptor)
