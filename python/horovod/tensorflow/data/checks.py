# SPDX-License-Identifier: Apache-2.0
"""What a data service does otherwise than a reader expects: refused, or said once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from horovod.tensorflow.data.config import TfDataServiceConfig

_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}
_PER_WORKER = {"TakeDataset": "take", "SkipDataset": "skip", "ShardDataset": "shard"}
_FIXED_PORTS = ("FILE", "DATA", "FILE_OR_DATA", "HINT")
_SOURCES = {"TensorSliceDataset", "RangeDataset"}
# Splits that a dispatcher hands out in about ten seconds.
_MANY = 10_000


def check_call(
    config: TfDataServiceConfig, size: int | None, processing_mode: Any, reuse_dataset: bool, round_robin: bool
) -> None:
    """Raise ValueError for arguments that would fail later, or hang."""
    if getattr(processing_mode, "name", "") in _FIXED_PORTS:
        raise ValueError(
            f"processing_mode={processing_mode}: this sharding policy needs workers at ports that are known before "
            "they start, and those of a compute job are not; use 'distributed_epoch' or 'parallel_epochs'"
        )
    if round_robin and not reuse_dataset:
        raise ValueError("round_robin=True needs reuse_dataset=True: ranks take turns in one pass that they share")
    if round_robin and size is None:
        raise ValueError("round_robin=True needs size=hvd.size(): the number of ranks that take turns")
    if round_robin and config.dispatchers > 1:
        raise ValueError(
            f"round_robin=True with {config.dispatchers} dispatchers: ranks take turns at one dispatcher; start the "
            "compute job with --dispatchers 1"
        )


def notes(dataset: Any, config: TfDataServiceConfig, processing_mode: Any, round_robin: bool) -> Iterator[str]:
    """Yield what the caller should know of this data set; ValueError for what cannot work."""
    import tensorflow as tf

    steps = list(chain(dataset))
    for one in steps:
        for function in one._functions() if hasattr(one, "_functions") else ():
            if _PYTHON & set(_operations(function)):
                raise ValueError(
                    f"send_to_data_service: the step {_kind(one)} calls Python (from_generator, py_function or "
                    "numpy_function), and there is no Python in a compute job; write it in TensorFlow, or do it after "
                    "the call"
                )
    if round_robin and tf.executing_eagerly() and int(dataset.cardinality()) >= 0:
        raise ValueError("round_robin=True needs an endless data set: call .repeat() before send_to_data_service")
    if config.dispatchers == 1 and processing_mode not in ("distributed_epoch", _dynamic(tf)):
        yield (
            f"processing_mode={processing_mode!r} with one dispatcher: every rank gets the whole data set from every "
            "worker; 'distributed_epoch' gives each element to a rank once"
        )
    for one in steps:
        if _kind(one) in _PER_WORKER:
            yield (
                f"{_PER_WORKER[_kind(one)]}() before the call acts in every one of the {config.workers_per_dispatcher} "
                "workers, not on the whole data set; call it afterwards"
            )
    source = steps[-1]
    dynamic = processing_mode in ("distributed_epoch", _dynamic(tf))
    if dynamic and _kind(source) in _SOURCES and tf.executing_eagerly() and int(source.cardinality()) > _MANY:
        yield (
            f"the source has {int(source.cardinality())} elements, and 'distributed_epoch' asks the dispatcher for "
            "each of them, about 1000 a second; group them (docs/guides/data-service.md, Groups), or use "
            "'parallel_epochs'"
        )


def _dynamic(tf: Any) -> Any:
    return tf.data.experimental.service.ShardingPolicy.DYNAMIC


def chain(dataset: Any) -> Iterator[Any]:
    """Yield a data set and those that it is made of, the source last."""
    seen = [dataset]
    while seen:
        one = seen.pop()
        yield one
        seen.extend(one._inputs() if hasattr(one, "_inputs") else ())


def _kind(dataset: Any) -> str:
    return type(dataset).__name__.lstrip("_")


def _operations(function: Any) -> Iterator[str]:
    graph = getattr(getattr(function, "function", None), "graph", None)
    if graph is None:
        return
    definition = graph.as_graph_def()
    for nodes in (definition.node, *(one.node_def for one in definition.library.function)):
        for node in nodes:
            yield node.op
