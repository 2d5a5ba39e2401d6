# SPDX-License-Identifier: Apache-2.0
"""Results in a page: each benchmark has a place of its own between two markers."""

from __future__ import annotations

from pathlib import Path


def put(path: Path, place: str, text: str) -> None:
    """Replace what is between `<!-- place begin -->` and `<!-- place end -->`."""
    begin, end = f"<!-- {place} begin -->", f"<!-- {place} end -->"
    before, rest = path.read_text().split(begin)
    path.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")
