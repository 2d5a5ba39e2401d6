# SPDX-License-Identifier: Apache-2.0
"""What is to be run, checked."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Callable, TextIO

from horovod.common.exceptions import HorovodUnsupportedError
from horovod.runner import layout


@dataclasses.dataclass(frozen=True)
class Request:
    """A function and how to run it."""

    name: str
    job: bytes  # pickled
    num_proc: int | None
    start_timeout: float
    variables: dict[str, str]
    show: Callable[[int, str, str], None]
    executable: str | None


def make(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    num_proc: int | None,
    start_timeout: float | None,
    env: Mapping[str, str] | None,
    stdout: TextIO | None,
    stderr: TextIO | None,
    prefix_output_with_timestamp: bool,
    executable: str | None,
    verbose: int,
) -> Request:
    """Return the request, or raise an error that names the argument."""
    import cloudpickle

    if not callable(fn):
        raise TypeError(f"fn={fn!r} is not callable: give the function that every rank is to run")
    if num_proc is not None and (isinstance(num_proc, bool) or not isinstance(num_proc, int) or num_proc < 1):
        raise ValueError(f"num_proc={num_proc!r}: give the number of ranks, 1 or more, or None for all slots of Spark")
    return Request(
        name=getattr(fn, "__name__", type(fn).__name__),
        job=cloudpickle.dumps((fn, tuple(args), dict(kwargs or {}))),
        num_proc=num_proc,
        start_timeout=_start_timeout(start_timeout),
        variables=layout.job_variables() if env is None else layout.checked_variables("env", env),
        show=_shower(stdout, stderr, prefix_output_with_timestamp) if verbose else lambda *unused: None,
        executable=executable,
    )


def refuse(use_mpi: bool | None, extra_mpi_args: str | None, nics: Any) -> None:
    """Refuse, or point out, what this way of starting ranks does not have."""
    if use_mpi or extra_mpi_args:
        name = "use_mpi=True" if use_mpi else f"extra_mpi_args={extra_mpi_args!r}"
        raise HorovodUnsupportedError(f"{name}: horovod.spark.run starts ranks without mpirun; leave it out")
    if nics:
        warnings.warn(
            f"nics={nics!r} has no effect: ranks use the interface by which their host reaches the driver",
            stacklevel=3,
        )


def _start_timeout(given: float | None) -> float:
    name, value = "start_timeout", given
    if given is None:
        name, value = "HOROVOD_SPARK_START_TIMEOUT", os.environ.get("HOROVOD_SPARK_START_TIMEOUT") or 600
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(f"{name}={value!r}: give the seconds, more than 0, that Spark has for starting all tasks")
    return seconds


def _shower(stdout: TextIO | None, stderr: TextIO | None, stamped: bool) -> Callable[[int, str, str], None]:
    def show(rank: int, stream: str, line: str) -> None:
        # Looked up now: a notebook has put its own streams in their place.
        out = (stdout or sys.stdout) if stream == "stdout" else (stderr or sys.stderr)
        stamp = time.strftime("%a %b %d %H:%M:%S %Y") if stamped else ""
        out.write(f"{stamp}[{rank}]<{stream}>:{line}\n")
        out.flush()

    return show
