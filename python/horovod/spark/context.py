# SPDX-License-Identifier: Apache-2.0
"""A run by a SparkContext: one barrier stage, whose tasks connect to this process."""

from __future__ import annotations

import contextlib
import functools
import re
import threading
import time
import uuid
from typing import TYPE_CHECKING

from horovod.runner.outcome import Outcome
from horovod.spark.coordinator import Coordinator
from horovod.spark.request import Request
from horovod.spark.tasks import be_task

if TYPE_CHECKING:
    from pyspark import SparkContext

# Seconds between two looks at the number of slots: Spark sends no event when an executor registers.
_LOOK = 0.1
# Seconds in which the tasks of a run that failed have usually ended, and after which Spark is asked to kill them.
_SOON = 0.1
_PATIENCE = 5


def slots(context: SparkContext) -> int:
    """Return how many tasks can run at the same time."""
    try:
        scala = context._jsc.sc()
        return scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile())
    except Exception:  # private to Spark: another release may have none
        return context.defaultParallelism


def run(context: SparkContext, request: Request) -> Outcome:
    """Run the request; raises TimeoutError or ValueError if the ranks cannot start."""
    size = request.num_proc or context.defaultParallelism
    deadline = time.monotonic() + request.start_timeout
    _wait_for_slots(context, size, request.start_timeout, deadline)
    bind, address = _addresses(context)

    def absent(count: int) -> str:
        return (
            f"num_proc={size}: {count} of {size} tasks started in {request.start_timeout:g} s, and Spark has "
            f"{slots(context)} slots: other jobs may use them; wait for those, or raise start_timeout"
        )

    with Coordinator(size, request.job, bind, request.variables, request.show) as coordinator:
        job = _Job(context, size, (address, coordinator.port), coordinator, request)
        with job:
            outcome = coordinator.run(deadline, absent)
            job.succeeded = outcome.failure is None
    return outcome


def _wait_for_slots(context: SparkContext, size: int, start_timeout: float, deadline: float) -> None:
    # Spark does not refuse a barrier stage that is too large: it tries again every 15 s, for 10 minutes.
    found = slots(context)
    if found < size and re.match(r"local(\[|$)", context.master):
        raise ValueError(
            f"num_proc={size} needs {size} slots, and Spark has {found} (master {context.master}): "
            f"lower num_proc, or start Spark with --master 'local[{size}]'"
        )
    while found < size:
        if time.monotonic() >= deadline:
            raise TimeoutError(
                f"num_proc={size} needs {size} slots, and Spark had {found} after {start_timeout:g} s: "
                "lower num_proc, or add executors, or raise start_timeout if they still start"
            )
        time.sleep(_LOOK)
        found = slots(context)


def _addresses(context: SparkContext) -> tuple[str, str]:
    if context.master.startswith("local"):  # local-cluster, too: all executors are on this machine
        return "127.0.0.1", "127.0.0.1"
    host = context.getConf().get("spark.driver.host", "127.0.0.1")
    return context.getConf().get("spark.driver.bindAddress", host), host.strip("[]")


class _Job:
    """The Spark job of a run, on a thread of its own. Use it in a with statement, inside that of the coordinator."""

    def __init__(
        self, context: SparkContext, size: int, address: tuple[str, int], coordinator: Coordinator, request: Request
    ) -> None:
        from pyspark import InheritableThread

        self.succeeded = False
        self._context, self._coordinator = context, coordinator
        self._tag = f"horovod-{uuid.uuid4()}"
        self._description = f"horovod.spark.run({request.name})"
        task = functools.partial(be_task, address, coordinator.token, request.executable)
        self._stage = context.parallelize(range(size), size).barrier().mapPartitionsWithIndex(task)
        self._thread = InheritableThread(target=self._run)
        self._thread.daemon = True

    def _run(self) -> None:
        try:
            # A tag leaves the caller's job group as it is, so that cancelJobGroup works as for every other job.
            self._context.addJobTag(self._tag)
            self._context.setLocalProperty("spark.job.description", self._description)
            self._stage.collect()
        except Exception as error:
            self._coordinator.spark_ended(why(error))

    def __enter__(self) -> _Job:
        """Start it."""
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        """Wait for it, if it ended well; otherwise see to its end in the background."""
        if self.succeeded:
            self._thread.join(_PATIENCE)
        if self._thread.is_alive():
            threading.Thread(target=self._end, name="hvd spark end", daemon=True).start()

    def _end(self) -> None:
        # Tasks that have registered end as soon as the coordinator closes.
        started = self._coordinator.started
        self._thread.join(_PATIENCE if started else _SOON)
        if self._thread.is_alive():
            with contextlib.suppress(Exception):  # Spark may be stopping
                self._context.cancelJobsWithTag(self._tag)


def why(error: BaseException) -> str:
    """Return the line of Spark's report that says what happened."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() if java is not None else error)
    found = re.findall(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt): .*", text.split("\n\tat ")[0], re.MULTILINE)
    python = [line for line in found if not line.startswith("org.apache.")]
    line = (python or text.strip().splitlines() or [type(error).__name__])[-1 if python else 0]
    if "No module named 'horovod" in line:
        line += "; Spark's workers run another Python: set PYSPARK_PYTHON to an interpreter that has hvd installed"
    return line
