# SPDX-License-Identifier: Apache-2.0
"""
The function of a job and its results, in a private folder.

    function     cloudpickle of the caller's sys.path, then of (function, arguments, keyword arguments)
    result.RANK  cloudpickle of ("value", result) or ("error", exception or None, its name and text, traceback)
    report.json  horovodrun's report

The folder has mode 0700 and is this user's: whoever can write there can run code as the user anyway.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterable
from typing import Any, Callable

from horovod.common.exceptions import HorovodInternalError, HorovodUnsupportedError

_USAGE = 2


class RemoteTraceback(Exception):
    """Where a rank raised; the cause of the exception that horovod.run raises."""


class Folder:
    """A job's folder. Use it in a with statement: it goes with the block."""

    def __init__(self, func: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> None:
        import cloudpickle

        payload = pickle.dumps(sys.path) + cloudpickle.dumps((func, args, kwargs))
        self._path = tempfile.mkdtemp(prefix="horovod-run-")
        with open(self._at("function"), "wb") as file:
            file.write(payload)

    def __enter__(self) -> Folder:
        """Nothing to do: the folder is there."""
        return self

    def __exit__(self, *unused: object) -> None:
        """Remove it."""
        shutil.rmtree(self._path, ignore_errors=True)

    def _at(self, name: str) -> str:
        return os.path.join(self._path, name)

    @property
    def path(self) -> str:
        """Where it is."""
        return self._path

    @property
    def report(self) -> str:
        """File for horovodrun's report."""
        return self._at("report.json")

    def command(self, executable: str | None) -> list[str]:
        """Return what every rank executes."""
        return [executable or sys.executable, "-m", "horovod.runner.run_task", self._path]

    def results(self, ranks: int, exit_code: int, complaint: str) -> list[Any]:
        """Return the results in order, or raise what went wrong."""
        if not os.path.exists(self.report):
            # Refused, or mpirun's job, which makes no report.
            self._raise_error(range(ranks))
            if exit_code == 0:
                return self._values(ranks)
            text = complaint.strip().removeprefix("horovodrun: ") or f"horovodrun ended with exit code {exit_code}"
            if exit_code == _USAGE:
                raise (HorovodUnsupportedError if "not in this release" in text else ValueError)(text)
            raise RuntimeError(text)
        if exit_code != 0:
            with open(self.report, encoding="utf-8") as file:
                self._raise_failure(json.load(file), ranks)
        return self._values(ranks)

    def _values(self, ranks: int) -> list[Any]:
        results = []
        for rank in range(ranks):
            result = self._result(rank)
            if result is None:
                raise RuntimeError(f"rank {rank} ended without a result: it left the function by os._exit or the like")
            results.append(result[1])
        return results

    def _result(self, rank: int) -> tuple | None:
        try:
            with open(self._at(f"result.{rank}"), "rb") as file:
                return pickle.load(file)
        except FileNotFoundError:
            return None

    def _raise_error(self, ranks: Iterable[int]) -> None:
        # Those who raised because another one did say so by HorovodInternalError: they are no cause.
        errors = [(rank, result) for rank in ranks if (result := self._result(rank)) and result[0] == "error"]
        errors.sort(key=lambda one: isinstance(one[1][1], HorovodInternalError))
        for rank, (_, exception, text, where) in errors:
            cause = RemoteTraceback(f"on rank {rank}:\n{where}")
            if exception is None:
                raise RuntimeError(f"rank {rank} raised {text}") from cause
            raise exception from cause

    def _raise_failure(self, report: dict[str, Any], ranks: int) -> None:
        first = report.get("first")
        if first is None and "why" in report.get("elastic", {}):
            raise RuntimeError(report["elastic"]["why"])
        if first is None and "host_failure" in report:
            raise RuntimeError(f"host {report['host']}: {report['host_failure']}; {report['suggestion']}")
        if first is None:
            raise RuntimeError(f"the job was ended by {report.get('interrupted_by', 'a signal')}")
        # The one that failed first, unless it had no chance to say why.
        for rank in [first["rank"], *range(ranks)]:
            result = self._result(rank)
            if result is None or result[0] != "error":
                if rank == first["rank"] and ("signal" in first or result is None):
                    break
                continue
            self._raise_error([rank])
        how = first.get("signal_name") or f"exit code {first.get('exit_code')}"
        lines = "\n".join(first["stderr"])
        raise RuntimeError(
            f"rank {first['rank']} (host {first['host']}, pid {first['pid']}) "
            f"{'did not respond and was ended' if first['silent'] else f'ended with {how}'}"
            f"{f'; its last lines on stderr:{chr(10)}{lines}' if lines else ''}"
        )


def work(path: str, get_rank: Callable[[], int]) -> int:
    """Be one rank: call the function and write what comes of it. Returns the exit code."""
    with open(os.path.join(path, "function"), "rb") as file:
        sys.path += [folder for folder in pickle.load(file) if folder not in sys.path]
        try:
            func, args, kwargs = pickle.load(file)
            result: tuple = ("value", func(*args, **kwargs))
        except Exception as error:
            result = _describe(error)
    try:
        data = _dump(result)
    except Exception as error:  # the value cannot be pickled
        result = _describe(error)
        data = _dump(result)
    rank = get_rank()
    temporary = os.path.join(path, f"result.{rank}.{os.getpid()}.part")
    with open(temporary, "wb") as file:
        file.write(data)
    os.rename(temporary, os.path.join(path, f"result.{rank}"))
    if result[0] == "value":
        return 0
    sys.stderr.write(result[3])
    return 1


def _dump(result: tuple) -> bytes:
    import cloudpickle

    return cloudpickle.dumps(result)


def _describe(error: Exception) -> tuple:
    where = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    text = f"{type(error).__name__}: {error}"
    error.__traceback__ = None
    try:
        # Some exceptions can be written and not be read again.
        pickle.loads(_dump((error,)))
    except Exception:
        return ("error", None, text, where)
    return ("error", error, text, where)
