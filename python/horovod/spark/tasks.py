# SPDX-License-Identifier: Apache-2.0
"""What Spark's workers execute. They import it by name, so hvd must be installed where executors run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from horovod.spark.supervisor import supervise


def be_task(
    address: tuple[str, int], token: bytes, executable: str | None, partition: int, _unused: Iterable[Any]
) -> Iterator[Any]:
    """Be one task of a barrier stage."""
    from pyspark import TaskContext

    context = TaskContext.get()
    supervise(partition, address, token, executable, context.cpus() if context else 1)
    return iter(())
