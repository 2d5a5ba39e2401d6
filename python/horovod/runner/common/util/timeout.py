# SPDX-License-Identifier: Apache-2.0
"""A limit for several waits together."""

from __future__ import annotations

import time


class TimeoutException(Exception):
    """
    A wait took too long. `message` says which.

    >>> from horovod.runner.common.util.timeout import TimeoutException
    >>> TimeoutException("no worker came").message
    'no worker came'
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Timeout:
    """
    A limit in seconds that begins now.

    `message` is the text of the exception; "{activity}" and "{timeout}" in it are replaced.

    >>> from horovod.runner.common.util.timeout import Timeout
    >>> limit = Timeout(30, "{activity} took more than {timeout} s")
    >>> limit.timed_out(), 0 < limit.remaining() <= 30
    (False, True)
    >>> limit.check_time_out_for("the start")
    """

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._message = message

    def remaining(self) -> float:
        """Return the seconds that are left; 0 when none are."""
        return max(0.0, self._end - time.monotonic())

    def timed_out(self) -> bool:
        """Return whether the time is over."""
        return time.monotonic() > self._end

    def check_time_out_for(self, activity: str) -> None:
        """Raise TimeoutException if the time is over."""
        if self.timed_out():
            text = self._message.replace("{activity}", activity).replace("{timeout}", f"{self._timeout:g}")
            raise TimeoutException(text)
