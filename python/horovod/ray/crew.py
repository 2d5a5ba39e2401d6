# SPDX-License-Identifier: Apache-2.0
"""The actors of a RayExecutor that has been started: makes them ranks, gives them work, and says how the work ended."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Callable

from horovod.ray.coordinator import Coordinator, in_order
from horovod.ray.strategy import _Strategy
from horovod.runner import layout
from horovod.runner.outcome import Failure

if TYPE_CHECKING:
    from ray import ObjectRef

# Seconds in which Ray, or another rank, may say something better than a rank that only blames another one.
_BLAME = 2
# Seconds between two looks at the queue of values for callbacks.
_LOOK = 0.1
# Seconds that idle ranks have to leave the job before Ray kills them.
_LEAVE = 2


class Crew:
    """
    The ranks of a RayExecutor.

    Thread safety: none.
    """

    def __init__(self, strategy: _Strategy, variables: dict[str, str]) -> None:
        self.workers: list[Any] = []  # in the order of ranks
        self._strategy, self._variables = strategy, variables
        self._where: list[layout.Whereabouts] = []
        self._busy: dict[ObjectRef, int] = {}  # ranks whose function was not waited for to its end
        self._broken = False  # some function failed, so the ranks must meet again
        self._remote = False  # functions have run whose end this object has not seen
        self._queue: Any = None

    # Starting and ending.

    def start(self) -> None:
        """Start the actors and make them ranks."""
        self.workers = self._strategy.create_workers()
        self._join()

    def end(self) -> None:
        """Let idle ranks leave the job, and end all."""
        import ray

        if not self._busy and not self._broken:
            ray.wait([worker.leave.remote() for worker in self.workers], num_returns=len(self.workers), timeout=_LEAVE)
        for worker in self.workers:
            ray.kill(worker)
        if self._queue is not None:
            self._queue.shutdown(force=True)
        self._strategy.shutdown()
        self.workers = []

    def _join(self) -> None:
        seconds = self._strategy.settings.timeout_s
        where = self._all("offer_seat", seconds=seconds)
        coordinator = Coordinator(self._strategy.settings)
        for process in where:
            coordinator.register(process)
        seats = coordinator.seats(self._variables)
        order = in_order(seats)
        self.workers = [self.workers[index] for index in order]
        self._where = [where[index] for index in order]
        self._show_gpus()
        self._each("take_seat", [seats[index] for index in order], seconds)
        self._broken = self._remote = False

    def _show_gpus(self) -> None:
        # Programs choose a GPU of their host by local_rank(), so each rank sees those of all ranks of its host.
        ids = self._all("get_gpu_ids")
        if any(ids):
            of_host = {
                where.host: ",".join(
                    dict.fromkeys(str(one) for w, own in zip(self._where, ids) if w.host == where.host for one in own)
                )
                for where in self._where
            }
            self._each("update_env_vars", [({"CUDA_VISIBLE_DEVICES": of_host[w.host]},) for w in self._where])

    # Work.

    def everywhere(self, method: str, *arguments: Any) -> list[Any]:
        """Return the results of a method of each rank, or raise RuntimeError with the rank and the cause."""
        return self._gather(
            {worker.attempt.remote(method, *arguments): rank for rank, worker in enumerate(self.workers)}
        )

    def run(
        self, fn: Callable[[Any], Any], callbacks: Sequence[Callable[[Any], None]], ranks: int | None = None
    ) -> list[Any]:
        """Return fn(executable) of each rank, or of the first ones."""
        import ray

        self._mend()
        job = ray.put(fn)  # once for all ranks
        with self._listening(callbacks) as look:
            refs = {worker.attempt.remote("execute", job): rank for rank, worker in enumerate(self.workers[:ranks])}
            return self._gather(refs, look)

    def begin(self, fn: Callable[[Any], Any]) -> list[ObjectRef]:
        """Start fn(executable) on each rank."""
        import ray

        self._mend()
        self._remote = True
        job = ray.put(fn)
        return [worker.execute.remote(job) for worker in self.workers]

    def _mend(self) -> None:
        """Make ranks meet again after a failure."""
        import ray

        if self._busy:
            seconds = self._strategy.settings.timeout_s
            _, late = ray.wait(list(self._busy), num_returns=len(self._busy), timeout=seconds)
            if late:
                raise RuntimeError(
                    f"{self._name(self._busy[late[0]])} still runs the function of an earlier call, which failed on "
                    "another rank: call shutdown() and start()"
                )
            self._busy.clear()
        if self._remote and not self._broken:
            self._broken = any(self._all("has_failed"))
            self._remote = False
        if self._broken:
            self._join()

    def _gather(self, refs: dict[ObjectRef, int], look: Callable[[], float | None] = lambda: None) -> list[Any]:
        import ray

        results: dict[int, Any] = {}
        failures: list[Failure] = []
        self._busy, until = dict(refs), float("inf")
        while self._busy and time.monotonic() < until and all(failure.blames for failure in failures):
            seconds = look()
            if failures:
                seconds = max(0.0, min(until - time.monotonic(), seconds or _BLAME))
            for ref in ray.wait(list(self._busy), num_returns=1, timeout=seconds)[0]:
                rank = self._busy.pop(ref)
                value = self._value(ref, rank)
                if not isinstance(value, Failure):
                    results[rank] = value
                    continue
                self._broken = True
                until = min(until, time.monotonic() + _BLAME)
                failures.append(value)
        look()
        if failures:
            next((failure for failure in failures if not failure.blames), failures[0]).raise_error()
        return [results[rank] for rank in sorted(results)]

    def _value(self, ref: ObjectRef, rank: int) -> Any:
        import ray
        from ray.exceptions import RayActorError, RayError

        try:
            value = ray.get(ref)
        except RayActorError as error:
            return Failure(f"{self._name(rank)} was lost: {_line(error)}")
        except RayError as error:  # the result cannot be pickled, or Ray has lost it
            return Failure(f"{self._name(rank)}: Ray did not return the result: {_line(error)}")
        return value.of(rank, self._name(rank)) if isinstance(value, Failure) else value

    def _name(self, rank: int) -> str:
        if rank >= len(self._where):
            return f"worker {rank}"
        return f"rank {rank} (host {self._where[rank].name}, pid {self._where[rank].pid})"

    # Short calls.

    def _all(self, method: str, seconds: float | None = None) -> list[Any]:
        return self._each(method, [()] * len(self.workers), seconds)

    def _each(self, method: str, arguments: Sequence[tuple[Any, ...]], seconds: float | None = None) -> list[Any]:
        import ray

        refs = [getattr(worker, method).remote(*own) for worker, own in zip(self.workers, arguments)]
        ready, late = ray.wait(refs, num_returns=len(refs), timeout=seconds)
        if late:
            raise TimeoutError(
                f"timeout_s={seconds:g}: {len(ready)} of {len(refs)} workers answered; Ray may still start the others: "
                "raise timeout_s in create_settings, or look at `ray list actors`"
            )
        values = [self._value(ref, rank) for rank, ref in enumerate(refs)]
        for value in values:
            if isinstance(value, Failure):
                self._broken = True
                Failure(f"{value.text}; call shutdown() and start()").raise_error()
        return values

    @contextlib.contextmanager
    def _listening(self, callbacks: Sequence[Callable[[Any], None]]) -> Iterator[Callable[[], float | None]]:
        """Give a function that calls the callbacks and returns the seconds after which to call it again."""
        import ray
        from ray.util.queue import Empty, Queue

        if not callbacks:
            yield lambda: None
            return
        if self._queue is None:
            self._queue = Queue(actor_options={"num_cpus": 0})

        def look() -> float:
            with contextlib.suppress(Empty):
                while True:
                    value = self._queue.get_nowait()
                    for callback in callbacks:
                        callback(value)
            return _LOOK

        ray.get(self.workers[0].set_queue.remote(self._queue))
        try:
            yield look
        finally:
            self.workers[0].set_queue.remote(None)


def _line(error: BaseException) -> str:
    """Return what Ray says of this event, in one line, without its general advice."""
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())  # without colors
    for advice in ("There are some potential root causes", "Some common causes include"):
        text = text.split(advice)[0]
    return text[max(0, text.find("Worker exit type:")) :].strip(" .") or type(error).__name__
