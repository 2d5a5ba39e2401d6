# SPDX-License-Identifier: Apache-2.0
"""What a training process keeps of each compute job that it reads from: a watch, a relay, the names of its jobs."""

from __future__ import annotations

import atexit
import collections
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
from horovod.tensorflow.data.turns import Turns
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
        self.client = config.compute_client()
        self.shut_down = False
        self._sending: threading.Event | None = None  # set when TensorFlow has sent the data set
        self._turns = Turns(self.fail)
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(places.held(config.key))
        self._stack.enter_context(keeper(config.key))
        self.relay = Relay(config, self.fail)
        self._stack.callback(self.relay.stop)
        self._join(rank, size)
        self._stack.callback(lambda: self._watch.close())
        self.meter = Meter(lambda elements: self._watch.send(elements=elements))
        self._stack.callback(self.meter.close)

    def _join(self, rank: int, size: int) -> None:
        self.rank = rank
        self.generation = generation()
        self._counts: collections.Counter[str] = collections.Counter()
        self._in_turn = False
        self._watch = Watch(
            self.client,
            self._heard,
            owner=f"training {rank}",
            rank=rank,
            size=size,
            training=True,
            hint=_hint(self.generation),
        )
        self._watch.start()

    def rejoin(self, rank: int, size: int) -> None:
        """Begin anew in another generation of an elastic job: its ranks make up a run of their own."""
        self._watch.close()
        self._join(rank, size)

    @property
    def run(self) -> int:
        """Return the number of this run among all that the compute job has seen."""
        return self._watch.run

    @property
    def owner(self) -> str:
        """Return how the service calls this process."""
        return self._watch.owner

    def job_name(self) -> str:
        """Return a name for one call: equal on the ranks of this run, and new in every run."""
        return f"hvd-{self.run}-{self._count('call')}"

    def pass_name(self) -> str:
        """Return a name for one pass of this rank alone; ranks may make different numbers of passes."""
        return f"hvd-{self.run}-rank{self.rank}-{self._count('pass')}"

    def agree(self, name: str, value: str) -> None:
        """Raise ValueError if a rank of this run gives another value in its n-th call with this name."""
        self.client.call("agree", run=self.run, what=f"{name} {self._count(name)}", rank=self.rank, value=value)

    def reads_in_turn(self, size: int) -> None:
        """Note that this process reads a data set in turn with the other ranks of its run."""
        if not self._in_turn:
            self._in_turn = True
            self.client.call("reads_in_turn", owner=self.owner)
            threading.Thread(target=self._await_others, args=(self.run, size), daemon=True).start()

    def reads_perhaps_in_turn(self) -> None:
        """Note that this process may do so, by a `distribute` of its own."""
        self.client.call("reads_in_turn", owner=self.owner)

    def _await_others(self, run: int, size: int) -> None:
        def trouble(timeout: float = 0) -> str:
            with contextlib.suppress(OSError):
                missing = self.client.call("missing_in_turn", run=run, size=size, timeout=timeout)
                if missing and run == self.run:
                    ranks = " and ".join(map(str, missing))
                    return f"rank {ranks} of {size} does not read, and with round_robin=True no rank gets data alone"
            return ""

        if trouble(self.config.timeout):
            self._turns.incomplete(trouble, tell=True)

    def reach(self, dispatcher: int) -> str:
        """Return the address of a dispatcher, after it and all its workers have answered this host."""
        limit = self.config.timeout
        server = self.client.dispatcher(dispatcher, limit, (self.run, self.rank))
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
            self.relay.hush()
            if self._sending is not None:
                threading.Thread(target=self._end_if_stuck, args=(self._sending,), daemon=True).start()
        elif kind == "open":
            self.relay.answer(self.client, self._watch.owner, self._watch.host)
        elif kind == "consumer gone":
            self._consumer_gone(event["rank"], event["orderly"])
        elif kind == LOST:
            self.fail(f"the compute job ended before training did ({self.client.name()} is gone)")
        elif kind == "compute lost":
            self.fail(f"the compute job ended before training did ({event['owner']} of the data service is gone)")

    def _consumer_gone(self, rank: int, orderly: bool) -> None:
        how, run = "has ended" if orderly else "was lost", self.run
        text = f"rank {rank} {how}, and with round_robin=True no rank gets data without it"
        if self._in_turn and not orderly and not generation():
            self.fail(text)
        self._turns.incomplete(lambda: text if run == self.run else "", tell=self._in_turn)

    def _count(self, name: str) -> int:
        self._counts[name] += 1
        return self._counts[name]

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
        if found.generation != generation() and not found.shut_down:
            found.rejoin(rank, own_size(size))
    if found.shut_down:
        raise ConnectionAbortedError(f"{found.client.name()} was shut down: start a new compute job to read again")
    if found.rank != rank:
        raise ValueError(f"rank={rank}: this process has registered as rank {found.rank} before")
    return found


def generation() -> int:
    """Return the generation of an elastic job, from 1 on; 0 without one."""
    from horovod.common import membership

    view = membership.view()
    return view.generation if view is not None else 0


def _hint(generation: int) -> str:
    """Return what the ranks of one run have in common, and other runs have not."""
    found = next((names for names in _HINTS if names[0] in os.environ), ())
    values = [os.environ.get(name, "") for name in found]
    if found == ("HOROVOD_JOB_ID",):
        values = [values[0].split(".")[0]]  # a number of the host follows
    return hashlib.sha256(" ".join([*values, str(generation)]).encode()).hexdigest()[:16]


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
