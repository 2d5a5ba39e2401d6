# SPDX-License-Identifier: Apache-2.0
"""A job whose generations end when a test says so, with the same ranks in each: for tests of states and their loop."""

from __future__ import annotations

import contextlib
from unittest import mock

from horovod.common import elastic, membership
from horovod.common.basics import HorovodBasics


class ChangingJob(contextlib.ExitStack):
    """Answers what a program asks of its membership, as long as it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = False
        self.news = 0
        self.reported: list[int] = []
        self.confirmed = 0
        self.left = False
        self.formed = 1
        self.agreed = -1
        self.agrees = lambda: self.reported[-1]

    def __enter__(self) -> ChangingJob:
        answers = {
            "enabled": lambda: True,
            "revoked": lambda wait_s=0.05: self.ended,
            "hosts_updated": lambda: self.news,
            "update_kind": lambda: 2,
            "report_commit": self.reported.append,
            "committed": self._confirm,
            "done": self._leave,
            "view": self._view,
        }
        super().__enter__()
        for name, answer in answers.items():
            self.enter_context(mock.patch.object(membership, name, answer))
        return self

    def run(self, func):
        """As `elastic.run`."""
        return elastic.run_fn(func, self._form)

    def end(self, error: Exception) -> None:
        """End the generation; raises what the program sees of it."""
        self.ended = True
        raise error

    def _form(self) -> None:
        self.formed += 1
        self.ended, self.news, self.agreed = False, 0, self.agrees()

    def _confirm(self) -> None:
        self.confirmed += 1

    def _leave(self) -> None:
        self.left = True

    def _view(self) -> membership.View:
        basics = HorovodBasics()
        size = basics.size()
        synced = tuple(range(size)) if self.agreed >= 0 else ()
        members = tuple(map(str, range(size)))
        return membership.View(
            self.formed, basics.rank(), size, basics.rank(), size, 0, 1, members, synced, self.agreed, "a test"
        )
