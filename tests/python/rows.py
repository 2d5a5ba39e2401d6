# SPDX-License-Identifier: Apache-2.0
"""Counts the rows of tests/features.toml that the tests of this run showed."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable

import tomllib

_FILE = pathlib.Path(__file__).resolve().parent.parent / "features.toml"


def rows() -> dict[str, str]:
    """All rows with their texts."""
    return tomllib.loads(_FILE.read_text())["rows"]


def in_suites() -> set[str]:
    """The rows of suites that run in environments of their own: make suite-NAME."""
    tests = [test for file in _FILE.parent.glob("*/requirements.txt") for test in file.parent.glob("test_*.py")]
    claims = [claim for test in tests for claim in re.findall(r"mark\.row\((.*?)\)", test.read_text(), re.DOTALL)]
    return {row for claim in claims for row in re.findall(r'"(\w+)"', claim)}


class Count:
    """Which rows tests claimed, and which of these claims failed."""

    def __init__(self) -> None:
        self._known = rows()
        self._claimed: set[str] = set()
        self._failed: set[str] = set()

    def claim(self, test: str, ids: Iterable[str]) -> None:
        """Take note of what a test says that it shows."""
        unknown = set(ids) - self._known.keys()
        if unknown:
            raise ValueError(f"{test}: no such row in tests/features.toml: {', '.join(sorted(unknown))}")

    def outcome(self, ids: Iterable[str], good: bool) -> None:
        """Take note of how it ended."""
        self._claimed.update(ids)
        if not good:
            self._failed.update(ids)

    def lines(self) -> list[str]:
        """What to print at the end."""
        shown = self._claimed - self._failed
        adapted = {row for row in shown if "(adapted" in self._known[row]}
        elsewhere = in_suites() - self._claimed
        missing = [row for row in self._known if row not in shown | elsewhere]
        lines = [
            f"features: {len(shown) - len(adapted)} pass, {len(adapted)} are adapted, {len(missing)} are missing, "
            f"{len(elsewhere)} are shown by suites of their own"
        ]
        return lines + [f"  missing: {row} {self._known[row]}" for row in missing]
