# SPDX-License-Identifier: Apache-2.0
"""
Compute jobs and readers for these tests.

`job` runs the ranks of a compute job as threads of the test's own process, which never imports TensorFlow; `launched`
starts one with a launcher. `read` runs a text as training ranks that are forked with TensorFlow already imported.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python")]

import spawn  # noqa: E402
from horovod.tensorflow.data import places  # noqa: E402
from horovod.tensorflow.data.compute_service import (  # noqa: E402
    ComputeService,
    TfDataServiceConfig,
    compute_worker_fn,
)

# How long anything may take on a machine that is busy; nothing here waits for it to pass.
PATIENCE_S = 180


@contextlib.contextmanager
def job(
    workers: int = 2, dispatchers: int = 1, side: str = "compute", folder: pathlib.Path | None = None, away: int = 0
):
    """
    A compute job for the block; yields its config, which is also in the file `folder`/compute.json.

    The test itself starts the last ranks of it, `away` in number.
    """
    key = secrets.token_bytes(32)
    failures: list[BaseException] = []

    def be(index: int) -> None:
        try:
            compute_worker_fn(config, index, workers)
        except BaseException as error:
            failures.append(error)

    with ComputeService(dispatchers, workers // dispatchers, key) as service:
        config = TfDataServiceConfig(dispatchers, workers // dispatchers, side, service.addresses(), key, PATIENCE_S)
        if folder is not None:
            config.write(folder / "compute.json")
        ranks = [threading.Thread(target=be, args=(index,), daemon=True) for index in range(workers - away)]
        for rank in ranks:
            rank.start()
        try:
            yield config
        finally:
            config.compute_client().shutdown()
            for rank in ranks:
                rank.join(PATIENCE_S)
    assert not failures, failures
    # The folder of a reader that ended in disorder is removed by its keeper, a moment later.
    deadline = time.monotonic() + 20
    while places.folder(key).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not places.folder(key).exists()


def servers(config: TfDataServiceConfig) -> dict[str, int]:
    """Return the processes of a compute job's dispatchers and workers on this host by name, such as d0 or w1."""
    folder = str(places.folder(config.key)).encode()
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if len(words) > 2 and words[1].endswith(b"server_process.py") and folder in words[2]:
                found[json.loads(words[2])["address"].rsplit("/", 1)[1]] = int(path.parent.name)
    return found


PRELUDE = """
import os, sys, time
import numpy as np
import tensorflow as tf
from horovod.tensorflow.data.compute_service import (
    TfDataServiceConfig, compute_worker_fn, exactly_once, send_to_data_service, tf_data_service)
from tensorflow.data.experimental.service import distribute
rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
def numbers(dataset):
    return sorted(int(one) for one in dataset)
"""


def words(text: str, file: pathlib.Path, *more: object) -> list[str]:
    """Return the words that run a text as a reader of the compute job in a config file."""
    return [sys.executable, "-c", PRELUDE + textwrap.dedent(text), str(file), *map(str, more)]


def read(
    text: str, folder: pathlib.Path, ranks: int = 1, *words_after: object, env: Mapping[str, str] | None = None, **more
):
    """Run a text as training ranks, with further words of the command line, and return how each ended."""
    env = {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONWARNINGS": "ignore", **(env or {})}
    command = words(text, folder / "compute.json", *words_after)
    return spawn.spawn(command, ranks, env=env, timeout=PATIENCE_S, preloaded="tensorflow", **more)


def outputs(text: str, folder: pathlib.Path, ranks: int = 1, *words_after: object, **more) -> list[str]:
    """Run a text as training ranks and return what each of them wrote; all must end well."""
    results = read(text, folder, ranks, *words_after, **more)
    assert all(one.returncode == 0 for one in results), "\n".join(map(spawn.describe, results))
    return [one.output for one in results]


@contextlib.contextmanager
def launched(
    ranks: int,
    file: pathlib.Path,
    *options: str,
    launcher: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen]:
    """A compute job started by a launcher, which must have ended by itself when the block is left, or is killed."""
    command = launcher or (str(pathlib.Path(sys.executable).parent / "horovodrun"), "-np", str(ranks))
    program = (sys.executable, "-m", "horovod.tensorflow.data.compute_worker", str(file), *options)
    process = subprocess.Popen(
        [*command, *program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=env,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def until(true, what: str) -> None:
    """Wait for something that is seen from outside only."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S} s"
        time.sleep(0.02)
