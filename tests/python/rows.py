# SPDX-License-Identifier: Apache-2.0
"""Counts the rows of tests/features.toml that the tests of this run showed."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

import tomllib

_FILE = pathlib.Path(__file__).resolve().parent.parent / "features.toml"


def rows() -> dict[str, str]:
    """All rows with their texts."""
    return tomllib.loads(_FILE.read_text())["rows"]


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

    @property
    def any(self) -> bool:
        """Whether any test of this run showed a row."""
        return bool(self._claimed)

    def lines(self) -> list[str]:
        """What to print at the end."""
        shown = self._claimed - self._failed
        adapted = {row for row in shown if "(adapted" in self._known[row]}
        missing = [row for row in self._known if row not in shown]
        lines = [f"features: {len(shown) - len(adapted)} pass, {len(adapted)} are adapted, {len(missing)} are missing"]
        return lines + [f"  missing: {row} {self._known[row]}" for row in missing]
