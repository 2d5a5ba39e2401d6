# SPDX-License-Identifier: Apache-2.0
"""What becomes of a run: results in the order of ranks, or the failure that the driver raises."""

from __future__ import annotations

import dataclasses
import sys
import traceback
from typing import Any, NoReturn

from horovod.common.exceptions import HorovodInternalError
from horovod.runner.task import RemoteTraceback


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why a rank did not return."""

    text: str
    traceback: str = ""
    exception: bytes = b""  # pickled; empty if it cannot be
    blames: bool = False  # it says that another rank was lost, so it is no cause

    def of(self, rank: int, name: str) -> Failure:
        """Return the failure with the name of its rank in the text."""
        where = f"On rank {rank}:\n{self.traceback}" if self.traceback else ""
        return dataclasses.replace(self, text=f"{name} {self.text}", traceback=where)

    def raise_error(self) -> NoReturn:
        """Raise RuntimeError with the text; its cause is the rank's exception."""
        import cloudpickle

        cause: BaseException | None = None
        if self.exception:
            try:
                cause = cloudpickle.loads(self.exception)
            except Exception:
                cause = None
        if cause is None and self.traceback:
            cause = RemoteTraceback(self.traceback)
        where = f"\n\n{self.traceback.rstrip()}" if self.traceback else ""
        raise RuntimeError(self.text + where) from cause


def describe(error: BaseException) -> Failure:
    """Return what a rank reports if its function raised `error`, which loses its traceback."""
    import cloudpickle

    where = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    how = "raised" if isinstance(error, Exception) else "left the function by"
    text = f"{how} {type(error).__name__}: {error}"
    blames = isinstance(error, HorovodInternalError) or "Horovod has been shut down" in str(error)
    error.__traceback__ = None
    sys.last_value = error  # hvd.shutdown() sends it to the other ranks as the reason
    try:
        # Some exceptions can be written and not be read again.
        body = cloudpickle.dumps(error)
        cloudpickle.loads(body)
    except Exception:
        body = b""
    return Failure(text, where, body, blames)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """
    Results, pickled, or a failure.

    Thread safety: immutable.
    """

    results: tuple[bytes, ...] = ()
    failure: Failure | None = None

    def unpack(self) -> list[Any]:
        """Return the results, or raise RuntimeError with the rank and the cause."""
        import cloudpickle

        if self.failure is None:
            return [cloudpickle.loads(result) for result in self.results]
        self.failure.raise_error()
