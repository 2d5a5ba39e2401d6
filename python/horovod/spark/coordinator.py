# SPDX-License-Identifier: Apache-2.0
"""
The driver's side of a run: waits for the tasks, makes them ranks, shows their lines and decides how the run ended.

It knows nothing of Spark. A task is whatever connects and knows the token (horovod.spark.supervisor).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import secrets
import selectors
import socket
import time
from typing import Any, Callable

from horovod.runner import layout
from horovod.runner.outcome import Failure, Outcome
from horovod.spark.channel import Channel
from horovod.spark.child import versions
from horovod.spark.door import Door
from horovod.spark.supervisor import own_path

# Seconds that ranks have to say something better after one that blames another rank.
_BLAME = 1
# Lines on stderr that are quoted when a rank ends without a reason of its own.
_LAST_LINES = 5


@dataclasses.dataclass(eq=False)
class _Task:
    """A task that has registered."""

    channel: Channel
    where: layout.Whereabouts
    rank: int = -1
    pid: int = 0  # of the rank
    result: bytes | None = None
    failure: Failure | None = None
    last_lines: collections.deque[str] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=_LAST_LINES)
    )

    @property
    def over(self) -> bool:
        return self.result is not None or self.failure is not None

    @property
    def name(self) -> str:
        pid = f", pid {self.pid}" if self.pid else ""
        return f"rank {self.rank} (host {self.where.name}{pid})"


class Coordinator:
    """
    One run of `job`, a pickled (function, args, kwargs), on `size` tasks.

    `show(rank, stream, line)` gets each line that a rank writes. `path` is the driver's part of the ranks' sys.path.
    `__exit__` ends the ranks that still run.

    Thread safety: any thread may call `spark_ended`; one thread calls the rest.
    """

    def __init__(
        self,
        size: int,
        job: bytes,
        bind: str,
        variables: dict[str, str],
        show: Callable[[int, str, str], None],
        path: list[str] | None = None,
    ) -> None:
        self.token = secrets.token_bytes(32)
        self._path = own_path() if path is None else path
        self._size, self._job, self._variables, self._show = size, job, variables, show
        self._selector = selectors.DefaultSelector()
        self._door = Door(bind, self.token, self._selector, self._admit)
        self.port = self._door.port
        self._wake_up, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, lambda: self._woken.recv(1))
        self._newcomers: set[Channel] = set()
        self._tasks: dict[int, _Task] = {}  # by partition
        self._failures: list[Failure] = []  # in the order of their arrival
        self.started = False
        self._spark_error: str | None = None
        self._blame_until = 0.0

    def __enter__(self) -> Coordinator:
        """Nothing to do: it listens already."""
        return self

    def __exit__(self, *unused: object) -> None:
        """End the ranks that still run, wherever they are, and listen no more."""
        self._door.close()
        for one in [*self._newcomers, *(task.channel for task in self._tasks.values()), self._wake_up, self._woken]:
            one.close()
        self._selector.close()

    def spark_ended(self, error: str) -> None:
        """Take note that Spark has ended the tasks, and why."""
        self._spark_error = error
        with contextlib.suppress(OSError):  # closed: nobody waits
            self._wake_up.send(b"!")

    def run(self, deadline: float, absent: Callable[[int], str]) -> Outcome:
        """Run the job. `absent(count)` is the text of the TimeoutError when only `count` tasks came by `deadline`."""
        while True:
            outcome = self._verdict()
            if outcome is not None:
                return outcome
            now = time.monotonic()
            if not self.started and now >= deadline:
                raise TimeoutError(absent(len(self._tasks)))
            times = self._door.deadlines()
            times += [] if self.started else [deadline]
            times += [self._blame_until] if self._failures else []
            for key, _ in self._selector.select(max(0.0, min(times) - now) if times else None):
                key.data()
            self._door.expire()

    def _verdict(self) -> Outcome | None:
        tasks = self._tasks.values()
        all_over = self.started and all(task.over for task in tasks)
        if all_over and not self._failures:
            by_rank = sorted(tasks, key=lambda task: task.rank)
            return Outcome(tuple(task.result for task in by_rank if task.result is not None))
        for failure in self._failures:
            if not failure.blames:
                return Outcome(failure=failure)
        if self._failures and (all_over or time.monotonic() >= self._blame_until):
            return Outcome(failure=self._failures[0])
        if self._spark_error is not None and not all_over:
            when = "before all ranks had ended" if self.started else f"before the {self._size} ranks were started"
            return Outcome(failure=Failure(f"Spark ended the run {when}: {self._spark_error}"))
        return None

    # Registration.

    def _admit(self, newcomer: Channel) -> None:
        self._newcomers.add(newcomer)
        self._selector.register(newcomer, selectors.EVENT_READ, lambda: self._register(newcomer))

    def _register(self, newcomer: Channel) -> None:
        try:
            messages = newcomer.take()
        except (EOFError, OSError):
            messages = [({}, b"")]
        if not messages:
            return
        self._selector.unregister(newcomer)
        self._newcomers.remove(newcomer)
        about = messages[0][0]
        partition = about.pop("hello", -1)
        # A second copy of a task, as speculation may start one, gets no rank.
        if partition in self._tasks or not 0 <= partition < self._size:
            newcomer.close()
            return
        self._tasks[partition] = task = _Task(newcomer, layout.Whereabouts(**about))
        self._selector.register(newcomer, selectors.EVENT_READ, lambda: self._hear(task))
        if len(self._tasks) == self._size:
            self._start()

    def _start(self) -> None:
        self.started = True
        tasks = [self._tasks[partition] for partition in range(self._size)]
        meeting = layout.meet([task.where for task in tasks])
        about = {"path": self._path, "versions": versions(), "several hosts": meeting.several_hosts}
        for task, place in zip(tasks, meeting.places):
            task.rank = place.rank
            own = {**self._variables, **place.variables(), "HOROVOD_RENDEZVOUS_ADDR": meeting.address}
            task.channel.put({"start": own, **about}, self._job)
            self._send(task)

    # Ranks.

    def _send(self, task: _Task) -> None:
        try:
            everything = task.channel.flush()
        except OSError:
            return  # reading says what became of it
        events = selectors.EVENT_READ | (0 if everything else selectors.EVENT_WRITE)
        self._selector.modify(task.channel, events, lambda: self._hear(task))

    def _hear(self, task: _Task) -> None:
        if task.channel.backlog:
            self._send(task)
        try:
            messages = task.channel.take()
        except (EOFError, OSError) as error:
            self._selector.unregister(task.channel)
            if not task.over:
                self._lose(task, error)
            return
        for header, body in messages:
            if "line" in header:
                self._show_line(task, header["line"], body)
            elif "raised" in header:
                self._raised(task, header, body)
            elif "ended" in header:
                self._ended(task, header, body)

    def _show_line(self, task: _Task, stream: str, data: bytes) -> None:
        line = data.decode("utf-8", "replace")
        if stream == "stderr":
            task.last_lines.append(line)
        self._show(task.rank, stream, line)

    def _raised(self, task: _Task, header: dict[str, Any], body: bytes) -> None:
        task.pid, report = header["pid"], header["raised"]
        failure = Failure(report["text"], report["traceback"], body, report["blames"])
        self._fail(task, failure.of(task.rank, task.name))

    def _ended(self, task: _Task, header: dict[str, Any], body: bytes) -> None:
        task.pid = header["pid"]
        if header["dropped"]:
            self._show(task.rank, "stderr", f"({header['dropped']} lines were dropped: the driver read too slowly)")
        if not header["ended"]:
            task.result = body
        elif task.failure is None:
            lines = "".join(f"\n{line}" for line in task.last_lines)
            self._fail(
                task,
                Failure(f"{task.name} {header['ended']}{'; its last lines on stderr:' if lines else ''}{lines}"),
            )

    def _lose(self, task: _Task, error: Exception) -> None:
        who = f"of rank {task.rank}" if self.started else "of a rank to be"
        why = "" if isinstance(error, EOFError) else f"; {error}"
        where = f"(host {task.where.name}, pid {task.where.pid})"
        self._fail(task, Failure(f"lost the Spark task {who} {where}: it was killed, or its host was lost{why}"))

    def _fail(self, task: _Task, failure: Failure) -> None:
        task.failure = failure
        if not self._failures:
            self._blame_until = time.monotonic() + _BLAME
        self._failures.append(failure)
