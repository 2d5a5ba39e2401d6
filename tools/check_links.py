# SPDX-License-Identifier: Apache-2.0
"""
Checks that links lead somewhere.

In Markdown pages every relative link must name a file of this project, and its anchor a heading of that page. In
sources every mention of a page, such as docs/README.md, must name a file. docs/README.md must link every page below
docs, because the website makes its navigation from that page.
"""

from __future__ import annotations

import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(\s*([^)\s]+)[^)]*\)")
FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1`*\s*$", flags=re.M | re.S)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", flags=re.S)
MENTION = re.compile(r"(?<![\w/.-])docs/[\w/.-]+\.md\b")
SOURCES = {".h", ".hpp", ".cc", ".c", ".py", ".sh", ".txt", ".toml", ".ipynb"}


def blank(match: re.Match) -> str:
    """Return as many line ends as `match` has, so that line numbers stay."""
    return "\n" * match[0].count("\n")


def anchor(heading: str) -> str:
    """
    Return the anchor that GitHub gives to a heading.

    >>> anchor("What is *measured*, and [why](x.md) so: `hvd_perf`")
    'what-is-measured-and-why-so-hvd_perf'
    """
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@functools.cache
def anchors(page: pathlib.Path) -> frozenset[str]:
    """Return the anchors of a page; a heading that comes again gets a number."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", FENCE.sub(blank, page.read_text()), flags=re.M):
        name = anchor(heading)
        count = found.get(name, 0)
        found[name] = count + 1
        if count:
            found[f"{name}-{count}"] = 1
    return frozenset(found)


def problem_of(page: pathlib.Path, target: str, root: pathlib.Path) -> str | None:
    """Return what is wrong with a link from `page` to `target`, or None."""
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return None
    name, _, fragment = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    if not file.is_relative_to(root) or not file.exists():
        return f"link to {target}, but there is no such file in this project"
    if fragment and file.suffix == ".md" and fragment not in anchors(file):
        return f"link to {target}, but no heading of {file.relative_to(root)} has the anchor #{fragment}"
    return None


def check_page(page: pathlib.Path, root: pathlib.Path) -> list[str]:
    """Return all links of a page that lead nowhere."""
    text = CODE.sub(blank, FENCE.sub(blank, page.read_text()))
    problems = []
    for match in LINK.finditer(text):
        problem = problem_of(page, match[1], root)
        if problem:
            line = text.count("\n", 0, match.start()) + 1
            problems.append(f"{page.relative_to(root)}:{line}: {problem}")
    return problems


def check_mentions(source: pathlib.Path, root: pathlib.Path) -> list[str]:
    """Return all mentions of pages in a source that do not exist."""
    return [
        f"{source.relative_to(root)}:{number}: names {mention}, which does not exist"
        for number, line in enumerate(source.read_text().splitlines(), start=1)
        for mention in MENTION.findall(line)
        if not (root / mention).is_file()
    ]


def check_index(root: pathlib.Path) -> list[str]:
    """Return all pages below docs that docs/README.md does not link."""
    index = root / "docs" / "README.md"
    if not index.is_file():
        return []
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in LINK.findall(index.read_text())}
    pages = sorted(set((root / "docs").rglob("*.md")) - {index} - linked)
    return [f"{page.relative_to(root)}: docs/README.md has no link to this page" for page in pages]


def check(root: pathlib.Path) -> list[str]:
    """Return everything wrong in the project at `root`."""
    pages = sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")])
    folders = ("benchmarks", "examples", "include", "python", "src", "tests", "tools")
    files = sorted(file for folder in folders for file in (root / folder).rglob("*") if file.is_file())
    sources = [root / "Makefile", *(file for file in files if file.suffix in SOURCES)]
    problems = [problem for page in pages for problem in check_page(page, root)]
    problems += check_index(root)
    return problems + [problem for source in sources for problem in check_mentions(source, root)]


def main() -> int:
    """Command line."""
    problems = check(ROOT)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print(f"check_links: {len(problems)} problems", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
