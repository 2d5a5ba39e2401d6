# SPDX-License-Identifier: Apache-2.0
"""Edits a program as findings say. Programs are in UTF-8, but for `diff`, which takes a file as it is."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from horovod.compat.finding import Finding
from horovod.compat.source import from_utf8, lines_of, to_utf8


def edited(source: bytes, findings: Iterable[Finding]) -> bytes:
    """
    Return the program with all edits made.

    >>> from horovod.compat import patching
    >>> from horovod.compat.finding import Edit, Finding, Kind
    >>> finding = Finding(1, Kind.BRIDGE, "lr", "", (Edit(1, 4, 1, 6, "learning_rate"),))
    >>> patching.edited(b"SGD(lr=0.1)", [finding])
    b'SGD(learning_rate=0.1)'
    """
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def place(line: int, column: int) -> int:
        return starts[line - 1] + column

    edits = {edit for finding in findings for edit in finding.edits}
    # From the end, so that places stay what they are. If two overlap, the later one is made.
    taken = len(source) + 1
    for edit in sorted(edits, key=lambda edit: (edit.line, edit.column, edit.end_line, edit.end_column), reverse=True):
        begin, end = place(edit.line, edit.column), place(edit.end_line, edit.end_column)
        if end <= taken:
            source = source[:begin] + edit.text.encode() + source[end:]
            taken = begin
    return source


def lines_today(source: bytes, findings: Iterable[Finding]) -> dict[int, str]:
    """Return the lines that edits change, by number, as they are to be written: one or more."""
    by_line: dict[int, list[Finding]] = {}
    for finding in findings:
        by_line.setdefault(finding.line, []).append(finding)
    before = lines_of(source)
    changed = {}
    for number, group in by_line.items():
        after = lines_of(edited(source, group))
        if after != before:
            changed[number] = "\n".join(_different(before, after))
    return changed


def _different(before: list[str], after: list[str]) -> list[str]:
    matcher = difflib.SequenceMatcher(a=before, b=after, autojunk=False)
    blocks = (range(b, b_end) for tag, _, _, b, b_end in matcher.get_opcodes() if tag != "equal")
    return [after[number].strip() for block in blocks for number in block]


def diff(name: str, raw: bytes, findings: Iterable[Finding]) -> bytes:
    """Return a patch that `patch -p0` takes for a file with the bytes `raw`; empty if there is nothing to change."""
    after = from_utf8(edited(to_utf8(raw), findings), raw)
    pieces = []
    label = name.encode(errors="surrogateescape")
    for line in difflib.diff_bytes(difflib.unified_diff, _pieces(raw), _pieces(after), label, label):
        pieces.append(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n")
    return b"".join(pieces)


def _pieces(raw: bytes) -> list[bytes]:
    # As `patch` takes lines apart.
    return re.findall(rb"[^\n]*\n|[^\n]+$", raw)
