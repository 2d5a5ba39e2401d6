# SPDX-License-Identifier: Apache-2.0
"""Edits of pieces of a syntax tree."""

from __future__ import annotations

import ast
from typing import Any

from horovod.compat.finding import Edit


def insertion(line: int, column: int, text: str) -> Edit:
    """Return the edit that puts a text there."""
    return Edit(line, column, line, column, text)


def after(node: ast.AST, text: str) -> Edit:
    """Return the edit that puts a text behind a node."""
    place: Any = node
    return insertion(place.end_lineno, place.end_col_offset, text)


def attribute(node: ast.Attribute, text: str) -> Edit:
    """Return the edit that gives an attribute another name: `a.old` becomes `a.text`."""
    place: Any = node
    return Edit(place.end_lineno, place.end_col_offset - len(node.attr.encode()), *end(node), text)


def between(first: ast.AST, last: ast.AST, text: str = "") -> Edit:
    """Return the edit that replaces what stands from the end of one node to the end of another one."""
    return Edit(*end(first), *end(last), text)


def whole(node: ast.AST, text: str) -> Edit:
    """Return the edit that replaces a node."""
    return Edit(*begin(node), *end(node), text)


def begin(node: Any) -> tuple[int, int]:
    """Return where a node begins."""
    return node.lineno, node.col_offset


def end(node: Any) -> tuple[int, int]:
    """Return where a node ends."""
    return node.end_lineno, node.end_col_offset


def keyword_name(keyword: ast.keyword, text: str) -> Edit:
    """Return the edit that gives a keyword of a call another name."""
    place: Any = keyword
    name = (keyword.arg or "").encode()
    return Edit(place.lineno, place.col_offset, place.lineno, place.col_offset + len(name), text)


def without_keyword(call: ast.Call, keyword: ast.keyword) -> Edit:
    """Return the edit that takes a keyword out of a call, with the comma that belongs to it."""
    arguments = sorted([*call.args, *call.keywords], key=begin)
    at = next(number for number, one in enumerate(arguments) if one is keyword)
    if at > 0:
        return between(arguments[at - 1], keyword)
    if len(arguments) > 1:
        return Edit(*begin(keyword), *begin(arguments[1]), "")
    return whole(keyword, "")
