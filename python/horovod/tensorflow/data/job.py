# SPDX-License-Identifier: Apache-2.0
"""One rank of a compute job: it keeps a worker, and some ranks a dispatcher, until the service says that it is over."""

from __future__ import annotations

import contextlib
import pathlib
import queue
import time
from typing import Any

from horovod.tensorflow.data import places, supervisor
from horovod.tensorflow.data.config import TfDataServiceConfig
from horovod.tensorflow.data.keeper import keeper
from horovod.tensorflow.data.registry import TimeoutException
from horovod.tensorflow.data.relay import Relay
from horovod.tensorflow.data.watch import LOST, Watch


def compute_worker_fn(compute_config: TfDataServiceConfig, index: int | None = None, size: int | None = None) -> None:
    """
    Be one rank of a compute job until somebody calls `compute_client().shutdown()`.

    Without `index` and `size`, they are rank and size of the Horovod job, whose `hvd.init()` was called. With them no
    Horovod job is needed. Some process must serve the registry meanwhile: `compute_worker.main` does in rank 0.

    >>> import threading
    >>> from horovod.tensorflow.data.compute_service import ComputeService, TfDataServiceConfig, compute_worker_fn
    >>> with ComputeService(1, 1, b"0123456789abcdef") as service:
    ...     config = TfDataServiceConfig(1, 1, "compute", service.addresses(), b"0123456789abcdef", timeout=600)
    ...     rank = threading.Thread(target=compute_worker_fn, args=(config, 0, 1))
    ...     rank.start()
    ...     workers = config.compute_client().wait_for_dispatcher_worker_registration(0, timeout=600)
    ...     config.compute_client().shutdown()
    ...     rank.join()
    >>> len(workers)
    1
    """
    if index is None or size is None:
        from horovod.common.basics import HorovodBasics

        index, size = HorovodBasics().rank(), HorovodBasics().size()
    wanted = compute_config.dispatchers * compute_config.workers_per_dispatcher
    if size != wanted:
        raise ValueError(
            f"the compute job has {size} ranks, and its config says {compute_config.dispatchers} dispatchers with "
            f"{compute_config.workers_per_dispatcher} workers each: start {wanted} ranks"
        )
    with contextlib.ExitStack() as stack:
        stack.enter_context(places.held(compute_config.key))
        stack.enter_context(keeper(compute_config.key))
        ComputeRank(compute_config, index, stack).serve()


class ComputeRank:
    """What `compute_worker_fn` does between its beginning and its end."""

    def __init__(self, config: TfDataServiceConfig, index: int, stack: contextlib.ExitStack) -> None:
        self._config = config
        self._index = index
        self._number = index // config.workers_per_dispatcher  # of its dispatcher
        self._client = config.compute_client()
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._worker: supervisor.Child | None = None
        self._dispatcher = ""  # the address of the one that the worker serves
        self._relay = Relay(config, self._failed)
        stack.callback(self._relay.stop)
        stack.callback(self._stop_worker)
        self._stack = stack
        self._watch = Watch(self._client, self._heard, owner=f"compute {index}", rank=index, training=False)
        stack.callback(self._watch.close)
        self._watch.start()

    def serve(self) -> None:
        """Follow the events until the service is shut down; ConnectionError if it is lost."""
        if self._config.dispatcher_side == "compute" and self._index % self._config.workers_per_dispatcher == 0:
            dispatcher = start_dispatcher(self._config, f"d{self._number}", self._failed)
            self._stack.callback(dispatcher.stop)
            dispatcher.wait_ready(self._config.timeout)
            self._client.register_dispatcher(
                self._number, places.address(self._config.key, f"d{self._number}"), self._watch.owner
            )
        deadline: float | None = time.monotonic() + self._config.timeout
        while True:
            try:
                event = self._events.get(timeout=None if deadline is None else max(0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutException(
                    f"dispatcher {self._number} of {self._config.dispatchers} did not register within "
                    f"{self._config.timeout:g} s: {self._who_comes()}, or give more time with --timeout"
                ) from None
            kind = event["event"]
            if kind == "shutdown":
                return
            if kind == "failed":
                raise RuntimeError(event["text"])
            if kind == LOST:
                raise ConnectionError(f"{self._client.name()} ended: rank 0 of the compute job is gone")
            if kind == "dispatcher" and event["number"] == self._number:
                deadline = None
                self._start_worker(event["server"])
            if kind == "forgotten" and event["dispatcher"] == self._number:
                self._stop_worker()
                self._relay.drop(self._dispatcher)

    def _who_comes(self) -> str:
        if self._config.dispatcher_side == "training":
            return "start the training job, which makes it"
        first = self._number * self._config.workers_per_dispatcher
        return f"rank {first} of the compute job makes it, see its output"

    def _heard(self, event: dict[str, Any]) -> None:
        if event["event"] == "open":  # by the thread that listens, because the other may be waiting for a server
            self._relay.answer(self._client, self._watch.owner, self._watch.host)
        else:
            self._events.put(event)

    def _failed(self, text: str) -> None:
        self._events.put({"event": "failed", "text": text})

    def _start_worker(self, server: dict[str, Any]) -> None:
        if self._worker is not None:
            return
        self._dispatcher = server["address"]
        self._relay.reach(self._client, server)
        address = places.address(self._config.key, f"w{self._index}")
        self._worker = supervisor.server(
            f"worker {self._index}",
            self._failed,
            role="worker",
            address=address,
            dispatcher=server["address"],
            timeout=self._config.timeout,
        )
        self._worker.wait_ready(self._config.timeout)
        self._client.register_worker_for_dispatcher(self._number, self._index, address, self._watch.owner)

    def _stop_worker(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None


def journal(config: TfDataServiceConfig, name: str) -> pathlib.Path:
    """Return the folder in which a dispatcher notes what its successor must know."""
    return places.folder(config.key) / f"journal-{name}"


def start_dispatcher(config: TfDataServiceConfig, name: str, failed: Any) -> supervisor.Child:
    """Start a dispatcher of this process; the name of its socket is such as d0."""
    work_dir = journal(config, name)
    work_dir.mkdir(mode=0o700, exist_ok=True)
    return supervisor.server(
        f"dispatcher {name[1:]}",
        failed,
        role="dispatcher",
        address=places.address(config.key, name),
        work_dir=str(work_dir),
    )
