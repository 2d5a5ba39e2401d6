# SPDX-License-Identifier: Apache-2.0
"""
A compute job: dispatchers and workers of TensorFlow's data service, as ranks of a launcher.

    horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker /shared/compute.json

Its processes stay until a training job calls `compute_client().shutdown()`, or the launcher ends them.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import secrets
import signal
import sys
import threading
import time
from typing import Callable

from horovod.tensorflow.data.config import TfDataServiceConfig
from horovod.tensorflow.data.job import compute_worker_fn
from horovod.tensorflow.data.keeper import keeper
from horovod.tensorflow.data.registry import TimeoutException
from horovod.tensorflow.data.service import ComputeService, report

KEY_BYTES = 32
_POLL_S = 0.05


def main(
    dispatchers: int = 1, dispatcher_side: str = "compute", configfile: str | os.PathLike[str] = "", timeout: int = 60
) -> None:
    """
    Be this rank of a compute job of all ranks, and return after an orderly end.

    Rank 0 writes the config file, which the other ranks read: it must lie on a path that all hosts of the job see.
    May be called in a thread of a process that has called `hvd.init()` already.
    """
    from horovod.common.basics import HorovodBasics
    from horovod.common.objects import broadcast_object

    hvd = HorovodBasics()
    if not hvd.is_initialized():
        hvd.init()
    rank, size = hvd.rank(), hvd.size()
    check(dispatchers, dispatcher_side, configfile, size)
    with contextlib.ExitStack() as stack:
        if rank == 0:
            key = secrets.token_bytes(KEY_BYTES)
            service = stack.enter_context(serve(dispatchers, size // dispatchers, key))
            config = TfDataServiceConfig(
                dispatchers, size // dispatchers, dispatcher_side, service.addresses(), key, timeout
            )
            stack.enter_context(keeper(key, configfile))
            stack.callback(config.remove, configfile)
            config.write(configfile)
            broadcast_object(_digest(config), name="hvd.data.config")
        else:
            config = _read(configfile, broadcast_object(None, name="hvd.data.config"), timeout)
        compute_worker_fn(config, rank, size)


def check(dispatchers: int, dispatcher_side: str, configfile: str | os.PathLike[str], size: int) -> None:
    """Raise ValueError for what cannot be a compute job of `size` ranks."""
    if dispatcher_side not in ("compute", "training"):
        raise ValueError(f"dispatcher_side={dispatcher_side!r}: it is 'compute' or 'training'")
    if not os.fspath(configfile):
        raise ValueError("configfile='': name the file that the compute job shall write for training jobs")
    if dispatchers < 1 or size % dispatchers:
        fits = " or ".join(str(one) for one in range(1, size + 1) if size % one == 0)
        raise ValueError(
            f"dispatchers={dispatchers}: the {size} ranks of the compute job cannot be shared out evenly among so "
            f"many; start a multiple of {max(dispatchers, 1)} ranks, or give --dispatchers {fits}"
        )


@contextlib.contextmanager
def serve(dispatchers: int, workers_per_dispatcher: int, key: bytes):
    """Serve the registry of a compute job for the block, and show how many elements its readers get."""
    ended = threading.Event()
    with ComputeService(dispatchers, workers_per_dispatcher, key) as service:
        reporter = threading.Thread(target=report, args=(service, ended), daemon=True)
        reporter.start()
        try:
            yield service
        finally:
            ended.set()
            reporter.join()


def _digest(config: TfDataServiceConfig) -> str:
    return hashlib.sha256(config.key).hexdigest()


def _read(configfile: str | os.PathLike[str], digest: str, timeout: float) -> TfDataServiceConfig:
    """Return the config of this job's rank 0: the key travels in the file alone, and an older file is waited over."""
    deadline = time.monotonic() + timeout
    while True:
        with contextlib.suppress(FileNotFoundError, ValueError):
            config = TfDataServiceConfig.read(configfile)
            if _digest(config) == digest:
                return config
        if time.monotonic() > deadline:
            raise TimeoutException(
                f"the config file {os.fspath(configfile)} that rank 0 has written did not appear on this host within "
                f"{timeout:g} s: give a path that all hosts of the compute job see"
            )
        time.sleep(_POLL_S)


def command(main: Callable[[int, str, str, int], None], prog: str, description: str) -> None:
    """Run `main` with the options of the command line; what cannot be ends the process with a sentence."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("configfile", metavar="CONFIGFILE", help="file to write for training jobs; keep it secret")
    parser.add_argument("--dispatchers", type=int, default=1, metavar="N", help="number of dispatchers (default 1)")
    parser.add_argument(
        "--dispatcher-side",
        choices=("compute", "training"),
        default="compute",
        help="the job that runs the dispatchers (default compute)",
    )
    parser.add_argument(
        "--timeout", type=int, default=60, metavar="S", help="seconds to wait for dispatchers and workers (default 60)"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _leave)
    try:
        main(options.dispatchers, options.dispatcher_side, options.configfile, options.timeout)
    except (OSError, ValueError, RuntimeError) as error:
        sys.exit(f"hvd data service: {error}")


def _leave(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # cleaning up is not interrupted
    sys.exit(128 + number)


if __name__ == "__main__":
    command(
        main,
        "python -m horovod.tensorflow.data.compute_worker",
        "Runs a TensorFlow data service on the ranks of a launcher, for training jobs to use.",
    )
