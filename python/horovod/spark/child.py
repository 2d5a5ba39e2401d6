# SPDX-License-Identifier: Apache-2.0
"""
The two processes that a Spark task starts for its rank: the warden and, forked from it, the rank itself.

The warden imports nothing but the standard library, so it is small. It ends the rank, with all that the rank has
started, when the task dies, when the task asks for it, and when the rank itself has ended. The rank runs the function.
The kernel kills the rank if the warden is killed.

    argv        descriptors of the job, of the result and of the news, and the task's pid
    job         JSON line, see horovod.spark.supervisor, then cloudpickle of (function, args, kwargs)
    result      JSON line, see `_report`, then cloudpickle of the value or of the exception
    news        lines of JSON: {"pid": N}, {"result": true}, {"status": wait status}
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horovod.runner.outcome import Failure

_PR_SET_PDEATHSIG = 1
# Seconds between asking a rank to end and killing it.
GRACE = 2


def main() -> None:
    """Be the warden, and in a fork the rank."""
    job, result, news, task = map(int, sys.argv[1:5])
    rank = 0

    def end(number: int, _frame: object) -> None:
        # SIGHUP: the task is dead. SIGALRM: the time to end by itself is over.
        signal.alarm(GRACE if number == signal.SIGTERM else 0)
        _end_group(rank, signal.SIGTERM if number == signal.SIGTERM else signal.SIGKILL)

    numbers = {signal.SIGTERM, signal.SIGHUP, signal.SIGALRM}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    _die_with(task, signal.SIGHUP)
    warden = os.getpid()
    rank = os.fork()
    if rank == 0:
        os.setsid()
        _die_with(warden, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        sys.exit(_run(job, result, news))
    for descriptor in (job, result, 0, 1, 2):
        os.close(descriptor)
    for number in numbers:
        signal.signal(number, end)
    _tell(news, pid=rank)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    # The group is there until the rank is reaped, so its number cannot be another's.
    os.waitid(os.P_PID, rank, os.WEXITED | os.WNOWAIT)
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    _end_group(rank, signal.SIGKILL)
    _tell(news, status=os.waitpid(rank, 0)[1])
    os._exit(0)


def _die_with(parent: int, number: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def _end_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        # It has not called setsid yet.
        os.kill(leader, number)


def _tell(news: int, **what: Any) -> None:
    # Without a reader the task is gone, and the rank is about to be ended for that.
    with contextlib.suppress(BrokenPipeError):
        os.write(news, json.dumps(what).encode() + b"\n")


def _run(job: int, result: int, news: int) -> int:
    for descriptor in (job, result, news):
        os.set_inheritable(descriptor, False)
    sys.argv = [""]
    with open(job, "rb") as file:
        about = json.loads(file.readline())
        own = [folder for folder in sys.path if folder]
        sys.path[:] = dict.fromkeys([*about["task path"], *own, *filter(os.path.exists, about["driver path"])])
        report, body = _call(file, about["versions"])
    with open(result, "wb") as file:
        file.write(json.dumps(report).encode() + b"\n" + body)
    _tell(news, result=True)
    return 1 if report["raised"] else 0


def versions() -> dict[str, str]:
    """Return the versions that driver and ranks must share, so that functions and results can travel."""
    import cloudpickle

    import horovod

    return {
        "Python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "cloudpickle": cloudpickle.__version__,
        "hvd": horovod.__version__,
    }


def _check_versions(expected: dict[str, str]) -> None:
    for name, version in versions().items():
        if version != expected[name]:
            raise RuntimeError(
                f"{sys.executable} has {name} {version} and the driver {expected[name]}: set PYSPARK_PYTHON, or "
                "executable=, to an interpreter with the driver's version"
            )


def _call(file: io.BufferedReader, expected: dict[str, str]) -> tuple[dict[str, Any], bytes]:
    import cloudpickle

    from horovod.runner.outcome import describe

    try:
        _check_versions(expected)
        function, args, kwargs = cloudpickle.load(file)
        value = function(*args, **kwargs)
    except BaseException as error:
        return _report(describe(error))
    try:
        return {"raised": False}, cloudpickle.dumps(value)
    except Exception as error:
        result = f"the function's result, a {type(value).__name__}"
        return _report(describe(TypeError(f"{result}, cannot be pickled: {error}")))


def _report(failure: Failure) -> tuple[dict[str, Any], bytes]:
    told = {"text": failure.text, "traceback": failure.traceback, "blames": failure.blames}
    return {"raised": True, **told}, failure.exception


if __name__ == "__main__":
    main()
