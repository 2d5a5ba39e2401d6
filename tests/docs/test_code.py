# SPDX-License-Identifier: Apache-2.0
"""
Every block of code of every page: Python, JSON and YAML can be read, commands exist and have the flags that are shown.

That programs do what pages say is tested beside the programs, in tests/python.
"""

import ast
import importlib.util
import json
import re
import shlex
import subprocess

import gen_env
import gen_errors
import gen_horovodrun
import pytest
import yaml
from conftest import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^( *)(`{3,})(\w*)[^\n]*\n(.*?)^ *\2 *$", flags=re.M | re.S)
BLOCKS = [
    pytest.param(match[3], re.sub(f"^{match[1]}", "", match[4], flags=re.M), id=f"{page.relative_to(ROOT)}:{line}")
    for page in PAGES
    for match in BLOCK.finditer(page.read_text())
    for line in [page.read_text().count("\n", 0, match.start()) + 1]
]
LANGUAGES = {"", "bash", "c", "cmake", "cpp", "diff", "json", "python", "text", "xml", "yaml"}


@pytest.fixture(scope="module")
def flags():
    """Names of flags of horovodrun."""
    command = [gen_horovodrun.find_horovodrun(), "--help", "--json"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {name for section in said for flag in section["flags"] for name in flag["names"].split()}


@pytest.mark.parametrize(("language", "text"), BLOCKS)
def test_block(language, text, flags):
    assert language in LANGUAGES
    if language == "python":
        ast.parse(text)
    elif language == "json":
        json.loads(text)
    elif language == "yaml":
        list(yaml.safe_load_all(text))
    elif language == "diff":
        assert all(line[:1] in ("+", "-", " ", "", "@", "\\") for line in text.splitlines())
    elif language in ("", "bash"):
        for line in text.replace("\\\n", " ").splitlines():
            check_command(line.removeprefix("$ "), flags)


def check_command(line, flags):
    """Check a line that starts a program of this project, or make."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # output, not a command
        return
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words.pop(0)
    program = words[0].rpartition("/")[2] if words else ""
    if program == "make" and len(words) > 1 and re.fullmatch(r"[a-z-]+", words[1]):
        makefile = (ROOT / "Makefile").read_text()
        target = "suite-%" if words[1].startswith("suite-") else words[1]
        assert re.search(rf"^{target}:", makefile, flags=re.M), f"make has no target {words[1]}"
    elif program == "horovodrun" and words[1:2] and words[1] not in ("agent", "doctor"):
        for word in words[1:]:
            if not word.startswith("-"):
                if word.endswith((".py", "python", "hvd_perf")):
                    break
                continue
            assert word.partition("=")[0] in flags, f"horovodrun has no flag {word}"
    elif program.startswith("python") and words[1:2] == ["-m"] and words[2].startswith("horovod"):
        assert importlib.util.find_spec(words[2].split(":")[0]), f"there is no module {words[2]}"


@pytest.mark.parametrize("generator", [gen_env, gen_errors, gen_horovodrun])
def test_generated_pages_are_current(generator):
    assert generator.TARGET.read_text() == generator.text(), "run make docs"
