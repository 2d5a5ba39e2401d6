# SPDX-License-Identifier: Apache-2.0
"""What a training process keeps of each compute job that it reads from: a watch, a relay, the names of its jobs."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from horovod.tensorflow.data import places
from horovod.tensorflow.data.config import TfDataServiceConfig
from horovod.tensorflow.data.keeper import keeper
from horovod.tensorflow.data.meter import Meter
from horovod.tensorflow.data.relay import Relay
from horovod.tensorflow.data.watch import LOST, Watch

# The exit code of a training process whose data service is lost.
EXIT_CODE = 3
# How long TensorFlow may go on sending a data set to a compute job that was shut down.
_SHUTDOWN_S = 5.0
# What tells one run of a launcher from another, equal on all hosts: the first that is set counts.
_HINTS = (
    ("HOROVOD_JOB_ID",),
    ("OMPI_MCA_ess_base_jobid",),
    ("PMIX_NAMESPACE",),
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ("PMI_JOBID",),
    ("HOROVOD_RENDEZVOUS_ADDR",),
    ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
)

_lock = threading.Lock()
_readers: dict[bytes, Reader] = {}


class Reader:
    """The process as a reader of one compute job, until the process ends."""

    def __init__(self, config: TfDataServiceConfig, rank: int, size: int) -> None:
        self.config = config
        self.rank = rank
        self.client = config.compute_client()
        self.shut_down = False
        self._sending: threading.Event | None = None  # set when TensorFlow has sent the data set
        self._calls = 0
        self._passes = 0
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(places.held(config.key))
        self._stack.enter_context(keeper(config.key))
        self.relay = Relay(config, self.fail)
        self._stack.callback(self.relay.stop)
        found = next((names for names in _HINTS if names[0] in os.environ), ())
        values = [os.environ.get(name, "") for name in found]
        if found == ("HOROVOD_JOB_ID",):
            values = [values[0].split(".")[0]]  # a number of the host follows
        hint = hashlib.sha256(" ".join(values).encode()).hexdigest()[:16]
        self._watch = Watch(
            self.client, self._heard, owner=f"training {rank}", rank=rank, size=size, training=True, hint=hint
        )
        self._stack.callback(self._watch.close)
        self.meter = Meter(lambda elements: self._watch.send(elements=elements))
        self._stack.callback(self.meter.close)

    @property
    def owner(self) -> str:
        """Return how the service calls this process."""
        return self._watch.owner

    def job_name(self) -> str:
        """Return a name for one call: equal on the ranks of this run, and new in every run."""
        self._calls += 1
        return f"hvd-{self._watch.run}-{self._calls}"

    def pass_name(self) -> str:
        """Return a name for one pass of this rank alone; ranks may make different numbers of passes."""
        self._passes += 1
        return f"hvd-{self._watch.run}-rank{self.rank}-{self._passes}"

    def reach(self, dispatcher: int) -> str:
        """Return the address of a dispatcher, after it and all its workers have answered this host."""
        limit = self.config.timeout
        server = self.client.dispatcher(dispatcher, limit)
        self.relay.reach(self.client, server)
        for worker in self.client.wait_for_dispatcher_worker_registration(dispatcher, limit):
            self.relay.reach(self.client, worker)
        return f"grpc://{server['address']}"

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Watch over TensorFlow while it sends a data set: if its dispatcher ends meanwhile, it would try for ever."""
        sent = self._sending = threading.Event()
        try:
            yield
        finally:
            sent.set()

    def fail(self, text: str) -> None:
        """End this process with a sentence: TensorFlow's reader would wait for ever, and nothing can interrupt it."""
        sys.stdout.flush()
        print(f"hvd data service: {text}. This process ends with code {EXIT_CODE}.", file=sys.stderr, flush=True)
        os._exit(EXIT_CODE)

    def close(self) -> None:
        """Leave in order."""
        self._stack.close()

    def _heard(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "shutdown":
            self.shut_down = True
            if self._sending is not None:
                threading.Thread(target=self._end_if_stuck, args=(self._sending,), daemon=True).start()
        elif kind == "open":
            gate = self.relay.open_gate(self._watch.host)
            self.client.call("opened", owner=self._watch.owner, gate=gate)
        elif kind == "consumer lost":
            self.fail(f"rank {event['rank']} was lost, and with round_robin=True no rank gets data without it")
        elif kind == LOST:
            self.fail(f"the compute job ended before training did ({self.client.name()} is gone)")

    def _end_if_stuck(self, sent: threading.Event) -> None:
        if not sent.wait(_SHUTDOWN_S):
            self.fail(f"{self.client.name()} was shut down while a data set was sent to it")


def reader(config: TfDataServiceConfig, rank: int, size: int | None) -> Reader:
    """Return this process's reader of a compute job, made at the first call."""
    with _lock:
        if config.key not in _readers:
            if not _readers:
                atexit.register(_close)
            _readers[config.key] = Reader(config, rank, own_size(size))
        found = _readers[config.key]
    if found.shut_down:
        raise ConnectionAbortedError(f"{found.client.name()} was shut down: start a new compute job to read again")
    if found.rank != rank:
        raise ValueError(f"rank={rank}: this process has registered as rank {found.rank} before")
    return found


def own_size(size: int | None) -> int:
    """Return the number of training ranks: as given, else as Horovod says, else 1."""
    if size is not None:
        return size
    from horovod.common.basics import HorovodBasics

    return HorovodBasics().size() if HorovodBasics().is_initialized() else 1


def _close() -> None:
    for found in _readers.values():
        found.close()
    _readers.clear()
