# SPDX-License-Identifier: Apache-2.0
"""Starts the process that cleans up after this one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator

from horovod.tensorflow.data import keeper_process, places, supervisor


@contextlib.contextmanager
def keeper(key: bytes, config_file: str | os.PathLike[str] = "") -> Iterator[None]:
    """Have the folder of this data service, and the config file, removed if this process is killed in the block."""
    digest = hashlib.sha256(key).hexdigest()
    file = os.path.abspath(config_file) if config_file else ""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", keeper_process.__file__, str(places.folder(key)), file, digest],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd="/",
        # A launcher that is killed has the rank's group killed, and all that has its job's name in the environment.
        env=supervisor.environment(),
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        yield
    finally:
        process.stdin.close()
        process.wait()
