# SPDX-License-Identifier: Apache-2.0
"""
Programs as Python reads them, whatever their encoding.

The reader and the patcher count in bytes of UTF-8, as ast does. A file may have a byte order mark, or say in a comment
that it is in Latin-1.
"""

from __future__ import annotations

import io
import tokenize


def to_utf8(raw: bytes) -> bytes:
    """
    Return a file's text in UTF-8 and without a byte order mark. SyntaxError or ValueError if it has no such encoding.

    >>> from horovod.compat import source
    >>> source.to_utf8(b"# coding: latin-1\\nx = '\\xe4'").decode().splitlines()[1]
    "x = 'ä'"
    """
    return raw.decode(_encoding(raw)).encode()


def from_utf8(text: bytes, raw: bytes) -> bytes:
    """Return a changed text as it is written into the file that had the bytes `raw`."""
    return text.decode().encode(_encoding(raw))


def lines_of(text: bytes) -> list[str]:
    """
    Return the lines that Python counts: a form feed, and what Unicode takes for an end of a line, are inside of lines.

    >>> from horovod.compat import source
    >>> source.lines_of(b"a\\x0cb\\r\\nc")
    ['a\\x0cb', 'c']
    """
    return [line.decode() for line in text.splitlines()]


def _encoding(raw: bytes) -> str:
    return tokenize.detect_encoding(io.BytesIO(raw).readline)[0]
