# SPDX-License-Identifier: Apache-2.0
"""Moves the steps of a data set to a compute job."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from horovod.tensorflow.data import checks
from horovod.tensorflow.data.config import TfDataServiceConfig
from horovod.tensorflow.data.reader import Reader, reader

if TYPE_CHECKING:
    import tensorflow as tf


def send_to_data_service(
    dataset: tf.data.Dataset,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    processing_mode: Any = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> tf.data.Dataset:
    """
    Return a data set whose elements the compute job makes by the steps of `dataset`.

    Also a method of tf.data.Dataset. Steps before the call run in the compute job, steps after it here. With
    `reuse_dataset` all ranks share one pass over the data, first come first served; with `round_robin`, too, they get
    elements in turn. An element that a killed worker held is lost; `exactly_once` is for training
    that cannot have that.

    >>> import threading
    >>> import tensorflow as tf
    >>> from horovod.tensorflow.data.compute_service import ComputeService, TfDataServiceConfig, compute_worker_fn
    >>> with ComputeService(1, 1, b"0123456789abcdeg") as service:
    ...     config = TfDataServiceConfig(1, 1, "compute", service.addresses(), b"0123456789abcdeg", timeout=600)
    ...     compute = threading.Thread(target=compute_worker_fn, args=(config, 0, 1))
    ...     compute.start()
    ...     data = tf.data.Dataset.range(5).map(lambda x: x * x).send_to_data_service(config, rank=0, size=1)
    ...     sorted(int(element) for element in data)
    ...     config.compute_client().shutdown()
    ...     compute.join()
    [0, 1, 4, 9, 16]
    """
    if compute_config.dispatcher_side == "training":
        raise RuntimeError(
            "send_to_data_service: the dispatchers of this compute job run in the training job "
            "(--dispatcher-side training). Use `with tf_data_service(compute_config, rank) as address:` and "
            "tf.data.experimental.service.distribute(service=address, ...), or start the compute job without that "
            "option"
        )
    check_size(compute_config, size)
    checks.check_call(compute_config, size, processing_mode, reuse_dataset, round_robin)
    for note in checks.notes(dataset, compute_config, processing_mode, round_robin):
        warnings.warn(f"send_to_data_service: {note}", stacklevel=2)
    own = reader(compute_config, rank, size)
    turns = (rank, size) if round_robin and size is not None else (None, None)
    name = own.job_name()
    return distribute(dataset, own, processing_mode, name if reuse_dataset else None, turns)


def distribute(
    dataset: Any,
    own: Reader,
    processing_mode: Any,
    name: str | None,
    turns: tuple[int | None, int | None] = (None, None),
) -> Any:
    """
    Return the data set as this process reads it.

    All that read under one `name` share one pass; without a name every iteration is a pass. `turns` are this consumer
    and the number of them.
    """
    import tensorflow as tf

    address = own.reach(own.rank if own.config.dispatchers > 1 else 0)
    if turns[1] is not None:
        own.reads_in_turn(turns[1])
    service = tf.data.experimental.service.distribute(
        processing_mode=processing_mode,
        service=address,
        job_name=name,
        consumer_index=turns[0],
        num_consumers=turns[1],
    )
    with own.sending():
        distributed = dataset.apply(service)
    return own.meter.behind(distributed)


def check_size(compute_config: TfDataServiceConfig, size: int | None) -> None:
    """Raise ValueError unless every rank of this training job has a dispatcher."""
    if compute_config.dispatchers > 1 and compute_config.dispatchers != size:
        raise ValueError(
            f"the compute job has {compute_config.dispatchers} dispatchers and the training job {size} ranks: with "
            f"more than one dispatcher each rank has its own. Start the compute job with --dispatchers "
            f"{1 if size is None else size}, or {compute_config.dispatchers} training ranks, and pass size=hvd.size()"
        )
