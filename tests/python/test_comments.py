# SPDX-License-Identifier: Apache-2.0
"""tools/check_comments.py finds what it is there for."""

import subprocess

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


@pytest.mark.parametrize(
    "title",
    ["x", "Fix it", "engine: extract membership.", "engine: " + "x" * 65, "stuff: change", "engine, stuff: change"],
)
def test_other_titles_are_refused(title):
    assert check_comments.check_title(title) is not None


def test_titles_without_an_upstream_are_checked(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x", *words], cwd=tmp_path, check=True, timeout=60)

    monkeypatch.setattr(check_comments, "ROOT", tmp_path)
    git("init", "--quiet", "--initial-branch=main", ".")
    for title in ["pushed", "one", "two"]:
        git("commit", "--quiet", "--allow-empty", "--message", title)
    assert check_comments.titles() == ["two", "one", "pushed"]
    git("remote", "add", "origin", ".")
    git("update-ref", "refs/remotes/origin/main", "HEAD~2")
    assert check_comments.titles() == ["two", "one"]
    git("branch", "--quiet", "--set-upstream-to=origin/main")
    git("update-ref", "refs/remotes/origin/main", "HEAD~1")
    assert check_comments.titles() == ["two"]
