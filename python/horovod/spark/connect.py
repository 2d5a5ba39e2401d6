# SPDX-License-Identifier: Apache-2.0
"""
A run by Spark Connect, whose client may be out of the executors' reach.

The task of partition 0 coordinates, and tells the others where by the barrier's allGather. The function travels to the
tasks as part of their code, and the outcome back as a row, so both are as safe as the connection to Spark is. Lines of
the ranks come with the outcome, at the end.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from horovod.runner.outcome import Failure, Outcome
from horovod.spark.coordinator import Coordinator
from horovod.spark.request import Request
from horovod.spark.supervisor import own_path, supervise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA = "about string, body binary"
# Characters of output that are kept: the last ones.
_MOST_OUTPUT = 4 << 20


def active_session() -> SparkSession | None:
    """Return the session of Spark Connect that is active, if there is one; its server may be in this process, too."""
    connect = sys.modules.get("pyspark.sql.connect.session")
    if connect is None:
        return None
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    return session if isinstance(session, connect.SparkSession) else None


def run(session: SparkSession, request: Request) -> Outcome:
    """Run the request."""
    if request.num_proc is None:
        raise ValueError("num_proc=None: Spark Connect does not tell how many slots there are; give num_proc")
    plan = {
        "size": request.num_proc,
        "job": request.job,
        "variables": request.variables,
        "executable": request.executable,
        "start timeout": request.start_timeout,
        "path": own_path(),
    }
    frame = session.range(0, request.num_proc, 1, request.num_proc)
    stage = frame.mapInArrow(lambda batches: _be_task(plan, batches), _SCHEMA, barrier=True)
    rows = _collect(session, stage)
    for row in rows:
        about = json.loads(row["about"])
        for rank, stream, line in about["lines"]:
            request.show(rank, stream, line)
        if about["late"] is not None:
            raise TimeoutError(about["late"])
    failures = [json.loads(row["about"])["failure"] for row in rows]
    if failures and failures[0] is not None:
        return Outcome(failure=Failure(**failures[0], exception=bytes(rows[0]["body"])))
    return Outcome(tuple(bytes(row["body"]) for row in rows))


def _collect(session: SparkSession, stage: Any) -> list[Any]:
    tag = f"horovod-{secrets.token_hex(8)}"
    tagged = hasattr(session, "addTag")
    if tagged:
        session.addTag(tag)
    try:
        return stage.collect()
    except BaseException:
        if tagged:
            with contextlib.suppress(Exception):
                session.interruptTag(tag)
        raise
    finally:
        if tagged:
            session.removeTag(tag)


def _be_task(plan: dict[str, Any], batches: Iterable[Any]) -> Iterator[Any]:
    from pyspark import BarrierTaskContext

    for _ in batches:
        pass
    context = BarrierTaskContext.get()
    partition = context.partitionId()
    if partition != 0:
        address, port, token = json.loads(context.allGather("")[0])
        supervise(partition, (address, port), bytes.fromhex(token), plan["executable"], context.cpus())
        return
    lines: list[tuple[int, str, str]] = []
    kept = 0

    def keep(rank: int, stream: str, line: str) -> None:
        nonlocal kept
        lines.append((rank, stream, line))
        kept += len(line)
        while kept > _MOST_OUTPUT:
            kept -= len(lines.pop(0)[2])

    address = context.getTaskInfos()[0].address.rsplit(":", 1)[0].strip("[]")
    coordinator = Coordinator(plan["size"], plan["job"], address, plan["variables"], keep, plan["path"])
    context.allGather(json.dumps([address, coordinator.port, coordinator.token.hex()]))
    yield from _coordinate(coordinator, plan, address, context.cpus(), lines)


def _coordinate(
    coordinator: Coordinator, plan: dict[str, Any], address: str, cores: int, lines: list[tuple[int, str, str]]
) -> Iterator[Any]:
    ends: dict[str, Any] = {}

    def coordinate() -> None:
        # The end of the block ends the ranks, that of this task among them.
        with coordinator:
            try:
                ends["outcome"] = coordinator.run(
                    time.monotonic() + plan["start timeout"],
                    lambda count: f"{count} of {plan['size']} tasks registered in {plan['start timeout']:g} s",
                )
            except TimeoutError as error:
                ends["late"] = str(error)

    # The rank's warden ends with the thread that started it, which has to be this one, the task's own.
    thread = threading.Thread(target=coordinate, name="hvd spark coordinator")
    thread.start()
    supervise(0, (address, coordinator.port), coordinator.token, plan["executable"], cores)
    thread.join()
    outcome = ends.get("outcome", Outcome())
    failure = outcome.failure
    told = None
    if failure is not None:
        told = {"text": failure.text, "traceback": failure.traceback, "blames": failure.blames}
    about = {"lines": lines, "late": ends.get("late"), "failure": told}
    yield _batch(json.dumps(about), failure.exception if failure else (outcome.results or [b""])[0])
    for result in outcome.results[1:]:
        yield _batch(json.dumps({"lines": [], "late": None, "failure": None}), result)


def _batch(about: str, body: bytes) -> Any:
    import pyarrow

    return pyarrow.RecordBatch.from_pydict({"about": [about], "body": [body]})
