# SPDX-License-Identifier: Apache-2.0
"""Dispatchers in the training job, for compute jobs that were started with --dispatcher-side training."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from horovod.tensorflow.data import places
from horovod.tensorflow.data.config import TfDataServiceConfig
from horovod.tensorflow.data.job import journal, start_dispatcher
from horovod.tensorflow.data.reader import Reader, own_size, reader
from horovod.tensorflow.data.send import check_size


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """
    Yield the address of this rank's dispatcher, for tf.data.experimental.service.distribute.

    With a dispatcher on the training side, rank 0 starts one for all ranks, or each rank one of its own, as a process
    of its own. It lives until every rank that uses it has left the block. With one on the compute side, the address of
    that one is given.

    >>> import threading
    >>> import tensorflow as tf
    >>> from horovod.tensorflow.data.compute_service import (
    ...     ComputeService, TfDataServiceConfig, compute_worker_fn, tf_data_service)
    >>> with ComputeService(1, 1, b"0123456789abcdeh") as service:
    ...     config = TfDataServiceConfig(1, 1, "training", service.addresses(), b"0123456789abcdeh", timeout=600)
    ...     compute = threading.Thread(target=compute_worker_fn, args=(config, 0, 1))
    ...     compute.start()
    ...     with tf_data_service(config, rank=0) as address:
    ...         distribute = tf.data.experimental.service.distribute("distributed_epoch", address)
    ...         sorted(int(element) for element in tf.data.Dataset.range(3).apply(distribute))
    ...     config.compute_client().shutdown()
    ...     compute.join()
    [0, 1, 2]
    """
    size = own_size(None)
    check_size(compute_config, size)
    own = reader(compute_config, rank, size)
    number = rank if compute_config.dispatchers > 1 else 0
    if compute_config.dispatcher_side == "compute":
        yield own.reach(number)
        return
    ranks = [rank] if compute_config.dispatchers > 1 else list(range(size))
    if len(ranks) > 1:
        own.reads_perhaps_in_turn()
    if rank != ranks[0]:
        try:
            yield own.reach(number)
        finally:
            _leave(own, number)
        return
    with _dispatcher(own, number):
        yield own.reach(number)
        _leave(own, number)
        with contextlib.suppress(ConnectionError):
            own.client.call("wait_left", dispatcher=number, run=own.run, ranks=ranks)


def _leave(own: Reader, number: int) -> None:
    with contextlib.suppress(ConnectionError):  # another rank has shut the compute job down already
        own.client.call("leave", dispatcher=number, run=own.run, rank=own.rank)


@contextlib.contextmanager
def _dispatcher(own: Reader, number: int) -> Iterator[None]:
    # The name holds the run, because two training jobs may try to use one compute job at the same time.
    name = f"d{number}run{own.run}"
    child = start_dispatcher(own.config, name, own.fail)
    try:
        child.wait_ready(own.config.timeout)
        own.client.register_dispatcher(number, places.address(own.config.key, name), own.owner)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                own.client.call("forget_dispatcher", number=number)
    finally:
        child.stop()
        # The next dispatcher must not go on where this one ended.
        shutil.rmtree(journal(own.config, name), ignore_errors=True)
