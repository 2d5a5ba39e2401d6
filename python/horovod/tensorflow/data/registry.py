# SPDX-License-Identifier: Apache-2.0
"""
What a data service knows: its dispatchers, workers and readers. No sockets here.

Thread safety: every method may be called by any thread; those that wait hold no lock meanwhile.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any, Callable


class TimeoutException(TimeoutError):
    """Something did not come within the time-out of the data service. `message` says what."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclasses.dataclass
class _Run:
    """One training run, or one generation of an elastic run."""

    number: int
    hint: str
    size: int
    ranks: set[int] = dataclasses.field(default_factory=set)  # that have joined
    gone: set[int] = dataclasses.field(default_factory=set)
    ended: bool = False


class Registry:
    """Dispatchers by id, their workers by id, and the ranks that read."""

    def __init__(self, dispatchers: int, workers_per_dispatcher: int) -> None:
        self.dispatchers = dispatchers
        self.workers_per_dispatcher = workers_per_dispatcher
        self._changed = threading.Condition()
        self._addresses: dict[int, dict[str, Any]] = {}
        self._workers: dict[int, dict[int, dict[str, Any]]] = {number: {} for number in range(dispatchers)}
        self._left: dict[int, set[tuple[int, int]]] = {number: set() for number in range(dispatchers)}  # run and rank
        self._runs: list[_Run] = []
        self._agreed: dict[tuple[int, str], tuple[int, str]] = {}  # run and what: rank and value
        self._shutdown = False

    def register_dispatcher(self, number: int, server: dict[str, Any]) -> None:
        """Note where a dispatcher is."""
        with self._changed:
            self._check(number)
            known = self._addresses.get(number)
            if known is not None and known != server:
                raise ValueError(
                    f"dispatcher {number} is registered at {known['address']} already, and now at {server['address']}: "
                    "one job can read at a time; end the other, or start a compute job for each"
                )
            if known is None:
                self._left[number] = set()
            self._addresses[number] = server
            self._changed.notify_all()

    def wait_for_dispatcher(
        self, number: int, timeout: float | None, reader: tuple[int, int] | None = None
    ) -> dict[str, Any]:
        """
        Return where a dispatcher is, once it has registered.

        `reader`, a run and a rank that left this dispatcher before, waits for the one that registers after it.
        """
        self._check(number)
        left = None if reader is None else tuple(reader)

        def there() -> bool:
            return number in self._addresses and left not in self._left[number]

        self._wait(
            lambda: there() or self._shutdown,
            timeout,
            lambda: (
                f"dispatcher {number} of {self.dispatchers} did not register within {timeout:g} s"
                f" ({len(self._addresses)} of {self.dispatchers} did)"
            ),
        )
        with self._changed:
            if not there():
                raise ConnectionAbortedError(f"the data service was shut down before dispatcher {number} registered")
            return self._addresses[number]

    def dispatchers_of(self, owner: str) -> list[int]:
        """Return the dispatchers of one process."""
        with self._changed:
            return [number for number, server in self._addresses.items() if server["owner"] == owner]

    def known_dispatchers(self) -> dict[int, dict[str, Any]]:
        """Return where dispatchers are, by id."""
        with self._changed:
            return dict(self._addresses)

    def forget_dispatcher(self, number: int) -> None:
        """Forget a dispatcher and its workers: another training job may register one."""
        with self._changed:
            self._check(number)
            self._addresses.pop(number, None)
            self._workers[number] = {}
            self._changed.notify_all()

    def register_worker(self, dispatcher: int, number: int, server: dict[str, Any]) -> None:
        """Note that a worker serves a dispatcher; a worker that registers twice counts once."""
        with self._changed:
            self._check(dispatcher)
            self._workers[dispatcher][number] = server
            self._changed.notify_all()

    def wait_for_workers(self, dispatcher: int, timeout: float | None) -> list[dict[str, Any]]:
        """Return all workers of a dispatcher, once they have registered."""
        self._check(dispatcher)
        wanted = self.workers_per_dispatcher
        self._wait(
            lambda: len(self._workers[dispatcher]) >= wanted or self._shutdown,
            timeout,
            lambda: (
                f"{len(self._workers[dispatcher])} of {wanted} workers of dispatcher {dispatcher} registered "
                f"within {timeout:g} s: the compute job may still be starting, or a host of it does not reach the "
                "dispatcher; raise its --timeout or look at its output"
            ),
        )
        with self._changed:
            if len(self._workers[dispatcher]) < wanted:
                raise ConnectionAbortedError("the data service was shut down before its workers registered")
            return list(self._workers[dispatcher].values())

    def leave(self, dispatcher: int, run: int, rank: int) -> None:
        """Note that a rank of a run has stopped reading from a dispatcher."""
        with self._changed:
            self._check(dispatcher)
            self._left[dispatcher].add((run, rank))
            self._changed.notify_all()

    def wait_left(self, dispatcher: int, run: int, ranks: list[int]) -> None:
        """Return when these ranks of a run have stopped reading from a dispatcher, or are gone."""
        self._check(dispatcher)

        def over() -> bool:
            gone = self._runs[run - 1].gone
            return all(rank in gone or (run, rank) in self._left[dispatcher] for rank in ranks)

        self._wait(lambda: over() or self._shutdown, None, str)

    def join_run(self, hint: str, rank: int, size: int) -> int:
        """Return the number of the training run that a rank belongs to; each rank of a run joins once."""
        with self._changed:
            for run in self._runs:
                if run.hint == hint and run.size == size and rank not in run.ranks and not run.ended:
                    break
            else:
                run = _Run(len(self._runs) + 1, hint, size)
                self._runs.append(run)
            run.ranks.add(rank)
            return run.number

    def leave_run(self, number: int, rank: int, lost: bool) -> None:
        """Note that a rank has left its run; after a loss nobody joins the run any more."""
        with self._changed:
            run = self._runs[number - 1]
            run.gone.add(rank)
            run.ended |= lost
            self._changed.notify_all()

    def agree(self, run: int, what: str, rank: int, value: str) -> None:
        """Raise ValueError if a rank of this run has given another value for this."""
        with self._changed:
            first, known = self._agreed.setdefault((run, what), (rank, value))
        if known != value:
            raise ValueError(f"ranks {min(first, rank)} and {max(first, rank)} differ")

    def shut_down(self) -> None:
        """Let every wait end."""
        with self._changed:
            self._shutdown = True
            self._changed.notify_all()

    def is_shut_down(self) -> bool:
        """Return whether `shut_down` was called."""
        with self._changed:
            return self._shutdown

    def wait_for_shutdown(self) -> None:
        """Return after `shut_down`."""
        self._wait(lambda: self._shutdown, None, str)

    def _check(self, number: int) -> None:
        if not 0 <= number < self.dispatchers:
            raise IndexError(f"there is no dispatcher {number}: this data service has {self.dispatchers}, from 0 on")

    def _wait(self, over: Callable[[], bool], timeout: float | None, text: Callable[[], str]) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not over():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutException(text())
                self._changed.wait(left)
