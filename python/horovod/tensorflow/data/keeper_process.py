# SPDX-License-Identifier: Apache-2.0
"""
Cleans up after a rank of a data service that was killed: a process of its own, run as a script.

    python keeper_process.py FOLDER CONFIGFILE DIGEST

It waits for the end of its standard input, that is of the rank. Then it removes the folder of sockets, if no other rank
of the host holds it, and the config file, if its key is the one with this digest. After an orderly end it finds
nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import sys
import time

# How long the kernel may take to close the files of a process that ends.
_DYING_S = 2.0


def main() -> None:
    """Wait, then remove."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder, config, digest = sys.argv[1:4]
    while os.read(0, 4096):
        pass
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        with open(config) as file:
            key = bytes.fromhex(json.load(file)["key"])
        if hashlib.sha256(key).hexdigest() == digest:
            os.unlink(config)
    with contextlib.suppress(OSError):
        alive = os.open(os.path.join(folder, "alive"), os.O_RDWR | os.O_NOFOLLOW)
        _lock(alive)
        shutil.rmtree(folder, ignore_errors=True)


def _lock(alive: int) -> None:
    """Lock the file if no other rank holds it. The end of the pipe may be seen before the dying rank's lock is gone."""
    deadline = time.monotonic() + _DYING_S
    while True:
        try:
            return fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.05)


if __name__ == "__main__":
    main()
