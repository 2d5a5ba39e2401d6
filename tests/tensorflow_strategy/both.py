# SPDX-License-Identifier: Apache-2.0
"""One body for both strategies: with the ranks that the tests started, and then as a cluster of TF_CONFIG."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from contextlib import contextmanager


def with_each_strategy(body: Callable) -> Callable:
    """Call the function with HorovodStrategy, and again with MultiWorkerStrategy; each call makes its own."""

    @functools.wraps(body)
    def test() -> None:
        from horovod.tensorflow.strategy import HorovodStrategy, MultiWorkerStrategy

        body(HorovodStrategy)
        with cluster():
            body(MultiWorkerStrategy)

    del test.__wrapped__  # pytest would look for fixtures
    return test


@contextmanager
def cluster(chief: bool = False, **more):
    """Leave the job, and describe the same ranks as a cluster."""
    import horovod.tensorflow as hvd
    import spawn

    rank, size = hvd.rank(), hvd.size()
    addresses = [f"localhost:{port}" for port in hvd.broadcast_object([spawn.free_port() for _ in range(size)])]
    hvd.shutdown()
    if chief:
        jobs = {"chief": addresses[:1], "worker": addresses[1:]}
        task = {"type": "worker" if rank else "chief", "index": max(rank - 1, 0)}
    else:
        jobs, task = {"worker": addresses}, {"type": "worker", "index": rank}
    with variables(TF_CONFIG=json.dumps({"cluster": jobs, "task": task}), **more):
        yield


@contextmanager
def variables(**values: str):
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
