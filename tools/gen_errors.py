# SPDX-License-Identifier: Apache-2.0
"""
Writes docs/reference/error-texts.md from the table by which horovodrun explains failures.

`--check` only says whether the file is current.
"""

from __future__ import annotations

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "hvd" / "launch" / "report" / "known_errors.txt"
TARGET = ROOT / "docs" / "reference" / "error-texts.md"
HEADER = """# What an error means

The failure report of `horovodrun` explains these texts of this library and of frameworks. This file is made by
`make docs` from src/hvd/launch/report/known_errors.txt. [errors.md](errors.md) lists the exceptions
and codes of each language.

| the text holds | it means | what to do |
|---|---|---|
"""


def text() -> str:
    """Return what the file must hold."""
    blocks = SOURCE.read_text().strip("\n").split("\n\n")
    rows = [block.split("\n") for block in blocks]
    return HEADER + "".join(
        f"| `{known.strip().replace('`', '')}` | {means} | {action} |\n" for known, means, action in rows
    )


def main() -> int:
    """Command line."""
    if "--check" in sys.argv[1:]:
        return 0 if TARGET.exists() and TARGET.read_text() == text() else 1
    TARGET.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
