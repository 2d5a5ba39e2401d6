# SPDX-License-Identifier: Apache-2.0
"""Several operations at once, for calls that take many tensors."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

from horovod.common import request
from horovod.common.operation import Operation

# An operation with what `request.submit` keeps of it.
Item = tuple[Operation, Sequence[Any]]


def run_all(items: Sequence[Item]) -> None:
    """
    Do them all at the same time and return when all are over.

    When some fail, the others are still waited for: nothing is in flight afterwards. Then the first error is raised.
    """
    flight = _Flight()
    try:
        for operation, keep in items:
            flight.start(operation, keep)
        flight.land()
    except BaseException:
        flight.abandon()
        raise


class _Flight:
    """Operations in flight whose outputs do not overlap: an array that shares memory with one of them has to wait."""

    def __init__(self) -> None:
        self._handles: list[int] = []
        self._outputs: list[tuple[int, int]] = []  # begin and end, in order

    def start(self, operation: Operation, keep: Sequence[Any]) -> None:
        address, size = operation.target or (0, 0)
        if size > 0:
            at = bisect.bisect_left(self._outputs, (address + size, 0))
            if at > 0 and self._outputs[at - 1][1] > address:
                self.land()
            bisect.insort(self._outputs, (address, address + size))
        self._handles.append(request.submit(operation, keep, lambda _: None))

    def land(self) -> None:
        """Wait for all."""
        first: Exception | None = None
        while self._handles:
            try:
                request.synchronize(self._handles[0])
            except Exception as error:
                first = first or error
            self._handles.pop(0)
        self._outputs.clear()
        if first is not None:
            raise first

    def abandon(self) -> None:
        for handle in self._handles:
            request.leave(handle)
