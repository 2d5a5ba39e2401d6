# SPDX-License-Identifier: Apache-2.0
"""What the doctor finds, and how it is written down."""

from __future__ import annotations

import dataclasses
import enum
import textwrap

_WIDTH = 110
# Begins the line of a rank of the doctor's job that has what it measured.
MARK = "horovod-doctor "


class Level(str, enum.Enum):
    """How bad a finding is."""

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclasses.dataclass(frozen=True)
class Finding:
    """
    One thing that was looked at.

    >>> print(as_text([Finding(Level.WARN, "cores", "2 usable, 4 ranks", fix="start fewer ranks")]))
    WARN  cores: 2 usable, 4 ranks
          -> start fewer ranks
    """

    level: Level
    what: str
    text: str
    fix: str = ""
    host: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return it for JSON."""
        return {**{name: value for name, value in vars(self).items() if value}, "level": self.level.value}


def passed(what: str, text: str) -> Finding:
    """Return a finding that asks for nothing."""
    return Finding(Level.PASS, what, text)


def warning(what: str, text: str, fix: str) -> Finding:
    """Return one that may slow a job down, or surprise."""
    return Finding(Level.WARN, what, text, fix)


def failure(what: str, text: str, fix: str) -> Finding:
    """Return one that keeps a job from working."""
    return Finding(Level.FAIL, what, text, fix)


def as_text(findings: list[Finding]) -> str:
    """Return the lines that people read."""
    lines = []
    for finding in findings:
        place = f"{finding.host}: " if finding.host else ""
        first, *rest = f"{place}{finding.what}: {finding.text}".splitlines()
        lines += textwrap.wrap(first, _WIDTH, initial_indent=f"{finding.level.value:<6}", subsequent_indent=" " * 6)
        lines += [f"      {line}" for line in rest]
        if finding.fix:
            lines += textwrap.wrap(finding.fix, _WIDTH, initial_indent="      -> ", subsequent_indent=" " * 9)
    return "\n".join(lines)
