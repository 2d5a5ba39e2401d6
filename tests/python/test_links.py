# SPDX-License-Identifier: Apache-2.0
"""tools/check_links.py finds links that lead nowhere, and only those."""

import check_links
import pytest

GONE = "/".join(["docs", "old.md"])  # in pieces, because this file is a source, too


def problems(tmp_path, text, source=""):
    (tmp_path / "docs").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "README.md").write_text("# Two words, `and_code`\n\n## Twice\n\n## Twice\n\n```\n# no heading\n```\n")
    (tmp_path / "docs" / "README.md").write_text(text)
    (tmp_path / "src" / "a.cc").write_text(source)
    (tmp_path / "Makefile").write_text("")
    return check_links.check(tmp_path)


def test_the_project_has_no_dead_links():
    assert check_links.main() == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](other.md)", "docs/README.md:1: link to other.md, but there is no such file"),
        (
            "\n\n[a\nb](../README.md#thrice)",
            "docs/README.md:3: link to ../README.md#thrice, but no heading of README.md",
        ),
        ("[a](../README.md#no-heading)", "has the anchor #no-heading"),
        ("[a](#here)", "no heading of docs/README.md"),
        ("![a](../../a.png)", "no such file in this project"),
    ],
)
def test_finds(tmp_path, text, expected):
    (problem,) = problems(tmp_path, text)
    assert expected in problem


def test_finds_mentions_in_sources(tmp_path):
    (problem,) = problems(tmp_path, "", source=f"// See docs/README.md.\n// See {GONE}.\n")
    assert problem == f"src/a.cc:2: names {GONE}, which does not exist"


def test_finds_pages_that_the_index_does_not_link(tmp_path):
    (tmp_path / "docs" / "guides").mkdir(parents=True)
    (tmp_path / "docs" / "README.md").write_text("[a](guides/a.md#part)\n")
    for name in ("a", "b"):
        (tmp_path / "docs" / "guides" / f"{name}.md").write_text("# Page\n")
    (problem,) = check_links.check_index(tmp_path)
    assert problem.endswith("guides/b.md: docs/README.md has no link to this page")


def test_accepts_good_links_and_code(tmp_path):
    text = """# Here

[a](../README.md), [b](../README.md#two-words-and_code), [c](../README.md#twice-1), [d](#here), [e](https://x.example/y.md)
`[f](no.md)`

```
[g](no.md)
```
"""
    assert problems(tmp_path, text) == []
