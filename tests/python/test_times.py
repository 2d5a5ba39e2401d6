# SPDX-License-Identifier: Apache-2.0
"""tools/timed and tools/times.py: the table at the end of make test; tools/step.sh: what long commands show."""

import pathlib
import re
import subprocess

import times

ROOT = pathlib.Path(__file__).resolve().parents[2]


def bash(folder, script):
    return subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_parts_are_noted_with_their_output_and_exit_code(tmp_path):
    timed = ROOT / "tools/timed"
    done = bash(tmp_path, f"{timed} 'a part' sh -c 'echo out; echo err >&2; exit 3'; echo $?; {timed} 'a part' true")
    assert (done.stdout, done.stderr) == ("out\n3\n", "err\n")
    (part,) = times.parts(tmp_path / "build/times/parts.tsv")
    assert part.name == "a part"
    assert part.busy >= 0


def test_parts_side_by_side_count_once_in_the_last_line():
    parts = [times.Part("lint", 100, 30, 15), times.Part("setup", 110, 10, 20)]
    assert [line.split() for line in times.table(parts)[1:]] == [
        ["lint", "30", "10", "0.5", "over"],
        ["setup", "10", "300", "2.0"],
        ["from", "start", "to", "end", "30"],
    ]


def test_every_part_is_planned():
    ci = (ROOT / ".ci/run").read_text()
    suites = " ".join(re.findall(r"^(?:HEAVY|LIGHT)=\((.*?)\)$", ci, flags=re.M)).split()
    assert all((ROOT / "tests" / suite).is_dir() for suite in suites)
    parts = {f"suite: {suite}" for suite in suites}
    for words in re.findall(r"""tools/timed ("[^$"]+"|'[^']+'|\w+)""", ci + (ROOT / "Makefile").read_text()):
        parts.add(words.strip("'\""))
    assert parts == set(times.PLANNED)


def test_a_step_that_fails_shows_what_it_printed(tmp_path):
    step = f"program='a suite'; . {ROOT / 'tools/step.sh'}; step 'doing'"
    assert bash(tmp_path, f"{step} echo unseen").stdout == "a suite: doing\n"
    done = bash(tmp_path, f"{step} sh -c 'echo seen; exit 1'; echo not reached")
    assert (done.returncode, done.stdout, done.stderr) == (1, "a suite: doing\n", "seen\na suite: doing: failed\n")
