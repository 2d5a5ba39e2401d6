# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, TextIO

from horovod.common.exceptions import HorovodUnsupportedError
from horovod.spark import request
from horovod.spark.request import Request


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: float | None = None,
    use_mpi: bool | None = None,
    use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    verbose: int = 1,
    nics: str | Sequence[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list[Any]:
    """
    Run ``fn(*args, **kwargs)`` on `num_proc` ranks, one per Spark task, and return their results in the order of ranks.

    Each rank is a process of its own, started by a Spark task. What ranks print appears in `stdout` and `stderr`, by
    default this program's; `verbose=0` hides it. If a rank fails, the RuntimeError names the rank, its host and the
    cause; its `__cause__` is the exception of the rank. Without `num_proc` there is one rank for every slot of Spark.
    `start_timeout` is the number of seconds that Spark has to start all tasks, by default HOROVOD_SPARK_START_TIMEOUT
    or 600. `env` holds variables for the ranks, by default the driver's HOROVOD_* variables. `executable` is the
    interpreter of the ranks, by default that of Spark's workers.

    >>> import horovod.spark                                            # doctest: +SKIP
    >>> from pyspark.sql import SparkSession                            # doctest: +SKIP
    >>> spark = SparkSession.builder.master("local[2]").getOrCreate()   # doctest: +SKIP
    >>> def square():
    ...     import horovod.numpy as hvd
    ...     hvd.init()
    ...     return hvd.rank() ** 2
    >>> horovod.spark.run(square, num_proc=2)                           # doctest: +SKIP
    [0, 1]
    """
    request.refuse(use_mpi, extra_mpi_args, nics)
    wanted = request.make(
        fn,
        args,
        kwargs,
        num_proc,
        start_timeout,
        env,
        stdout,
        stderr,
        prefix_output_with_timestamp,
        executable,
        verbose,
    )
    return _run(wanted)


def _run(wanted: Request) -> list[Any]:
    try:
        import pyspark
    except ImportError as error:
        raise ImportError("horovod.spark.run needs pyspark: pip install pyspark") from error
    from horovod.spark import connect

    session = connect.active_session()
    if session is not None:
        return connect.run(session, wanted).unpack()
    context = pyspark.SparkContext._active_spark_context
    if context is None:
        raise RuntimeError(
            "horovod.spark.run needs an active Spark session: create one first, by SparkSession.builder.getOrCreate(), "
            "or start the program by spark-submit"
        )
    from horovod.spark import context as by_context

    return by_context.run(context, wanted).unpack()


def run_elastic(*unused_args: Any, **unused: Any) -> list[Any]:
    """Refuse: elastic jobs on Spark are not in this release."""
    raise HorovodUnsupportedError(
        "horovod.spark.run_elastic is not in this release: use horovod.spark.run, with a fixed number of ranks"
    )
