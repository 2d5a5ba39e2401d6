# SPDX-License-Identifier: Apache-2.0
"""What the reader finds in a program: a place, what becomes of it, and what to write there today."""

from __future__ import annotations

import dataclasses
import enum


class Kind(enum.Enum):
    """What becomes of a line that was written for older releases."""

    BRIDGE = "bridged"
    TF1 = "with --compat tf1"
    MEANING = "means something else today"
    CANNOT = "cannot be bridged"


@dataclasses.dataclass(frozen=True)
class Edit:
    """A piece of the source to replace. Lines count from 1, columns are bytes from 0, as ast has them."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing in one line. `today` says in words what to write where no edits do."""

    line: int
    kind: Kind
    found: str
    today: str
    edits: tuple[Edit, ...] = ()
