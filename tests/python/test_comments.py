# SPDX-License-Identifier: Apache-2.0
"""tools/check_comments.py finds what it is there for."""

import check_comments
import pytest


def test_a_comment_that_is_too_wide_is_named():
    wide = "// " + "x" * 118
    assert check_comments.check_lines("a.h", f"int a;\n{wide}\n") == [
        "a.h:2: a comment has 121 columns, more than 120: break it by hand"
    ]
    assert check_comments.check_lines("a.h", "int a;  " + wide) != []
    assert check_comments.check_lines("a.h", wide[:-1]) == []
    assert check_comments.check_lines("a.h", 'call("' + "x" * 120 + '");') == []


@pytest.mark.parametrize(
    "title",
    ["engine: extract membership from Engine", "docs: begin sentences with their subject", "data service: add a store"],
)
def test_titles_with_an_area_are_taken(title):
    assert check_comments.check_title(title) is None


@pytest.mark.parametrize("title", ["x", "Fix it", "engine: extract membership.", "engine: " + "x" * 65])
def test_other_titles_are_refused(title):
    assert check_comments.check_title(title) is not None
