# SPDX-License-Identifier: Apache-2.0
"""
Checks what clang-format leaves alone: the width of comments, and the titles of commits that are not pushed yet.

clang-format does not break comments (ReflowComments), since it would merge the lines of tables and glossaries.
"""

from __future__ import annotations

import functools
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 120
TITLE_WIDTH = 72
COMMENT = re.compile(r"^\s*(//|/\*|\*)|\S.*\s//\s")
SUFFIXES = {".h", ".hpp", ".cc", ".c"}
# Areas, then a sentence without its full stop.
TITLE = re.compile(r"([a-z][\w ./-]*(?:, [a-z][\w ./-]*)*): \S.*[^.]")
# Titles that are checked where git knows no branch that they could be pushed to.
LAST = 5


def check_lines(name: str, text: str) -> list[str]:
    """Return what is wrong with the comments of a file."""
    return [
        f"{name}:{number}: a comment has {len(line)} columns, more than {WIDTH}: break it by hand"
        for number, line in enumerate(text.split("\n"), 1)
        if len(line) > WIDTH and COMMENT.search(line)
    ]


@functools.cache
def areas() -> frozenset[str]:
    """Return what a title may begin with: ci, build, and the names of folders and modules."""
    found = {"ci", "build", *(path.name for path in [*ROOT.iterdir(), *(ROOT / "tests").iterdir()] if path.is_dir())}
    for folder in (ROOT / "src/hvd", ROOT / "python/horovod"):
        found |= {path.stem for path in folder.rglob("*") if path.is_dir() or path.suffix == ".py"}
    return frozenset(found)


def check_title(title: str) -> str | None:
    """Return what is wrong with the title of a commit, or None."""
    if len(title) > TITLE_WIDTH:
        return f"commit '{title}' has {len(title)} columns in its title, more than {TITLE_WIDTH}"
    match = TITLE.fullmatch(title)
    if match is None:
        return f"commit '{title}' is not of the form 'area: what it does', without a full stop"
    for area in match[1].split(", "):
        if area.replace(" ", "_").removeprefix("horovod.").partition("/")[0] not in areas():
            return f"commit '{title}': '{area}' is no area: name a folder or module of this project, build or ci"
    return None


def titles() -> list[str]:
    """Return the titles of commits that are not pushed yet; of the last ones where nothing says what is pushed."""
    log = ("log", "--format=%s", "--no-merges")
    if git("rev-parse", "--abbrev-ref", "@{upstream}"):
        return git(*log, "@{upstream}..HEAD")
    # A branch without upstream, or no branch at all, as in CI.
    return git(*log, "HEAD", "--not", "--remotes") if git("remote") else git(*log, f"-{LAST}")


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints; none where it fails, as in an archive of the sources."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def main() -> int:
    """Print every problem; 1 if there is one."""
    problems = []
    for name in git("ls-files"):
        path = ROOT / name
        if path.suffix in SUFFIXES and path.is_file():
            problems += check_lines(name, path.read_text(errors="replace"))
    problems += filter(None, map(check_title, titles()))
    print("\n".join(problems), end="\n" if problems else "", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
