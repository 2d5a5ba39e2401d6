# SPDX-License-Identifier: Apache-2.0
"""
Seconds until a compute job of TensorFlow's data service serves, and until it is gone after `shutdown`.

    .venv/bin/python benchmarks/data_service_start.py [--ranks 4] [--rounds 3]

A job of as many ranks that only initializes Horovod shows what the launcher and the interpreters take of it.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from horovod.tensorflow.data import places
from horovod.tensorflow.data.compute_service import TfDataServiceConfig

EMPTY = "import horovod.tensorflow.data.compute_worker, horovod.numpy as hvd; hvd.init(); hvd.barrier(); hvd.shutdown()"


def horovodrun(ranks: int, *words: str) -> subprocess.Popen:
    """Start ranks of a Python program."""
    launcher = pathlib.Path(sys.executable).with_name("horovodrun")
    return subprocess.Popen([launcher, "-np", str(ranks), sys.executable, *words])


def empty(ranks: int) -> float:
    """Return the seconds of a job that does nothing."""
    begin = time.perf_counter()
    assert horovodrun(ranks, "-c", EMPTY).wait() == 0
    return time.perf_counter() - begin


def compute(ranks: int, folder: pathlib.Path) -> tuple[float, float]:
    """Return the seconds until all workers have registered, and from `shutdown` until nothing is left."""
    file = folder / "compute.json"
    begin = time.perf_counter()
    job = horovodrun(ranks, "-m", "horovod.tensorflow.data.compute_worker", str(file))
    config = TfDataServiceConfig.read(file, wait_for_file_creation=True)
    client = config.compute_client()
    client.wait_for_dispatcher_registration(0)
    client.wait_for_dispatcher_worker_registration(0)
    up = time.perf_counter() - begin
    begin = time.perf_counter()
    client.shutdown()
    code = job.wait()
    gone = time.perf_counter() - begin
    left = [one for one in (file, places.folder(config.key)) if one.exists()]
    assert (code, left) == (0, []), f"exit code {code}, left behind: {left}"
    return up, gone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    alone, found = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            alone.append(empty(options.ranks))
            found.append(compute(options.ranks, pathlib.Path(folder)))
    up, gone = (statistics.median(one) for one in zip(*found))
    print(f"{options.ranks} ranks that do nothing {statistics.median(alone):6.2f} s")
    print(f"compute job serves      {up:6.2f} s   the servers' part {up - statistics.median(alone):.2f} s")
    print(f"gone after shutdown     {gone:6.2f} s   exit code 0, nothing left")


if __name__ == "__main__":
    main()
