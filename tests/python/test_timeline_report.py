# SPDX-License-Identifier: Apache-2.0
"""What `python -m horovod.timeline report` finds: the slow rank, the slow layer, and where the time of a step goes."""

import contextlib
import doctest
import html.parser
import io
import json
import re
import types

import pytest
from horovod import timeline, timeline_page, timeline_report

STEPS, STEP, LATE = 10, 20_000.0, 6_000.0


def events(rank, names, wires, late):
    """Return a file of a rank whose steps compute, submit all operations at once, and come late if they are to."""
    clock = {"rank": rank, "wall_base_ns": 1_000_000_000, "boot": "b", "monotonic_base_ns": 1_000_000_000}
    found = [{"ph": "M", "name": "hvd_clock", "pid": 0, "args": clock}]
    for pid, name in enumerate(names, 1):
        found.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
    for step in range(STEPS):
        everybody = step * STEP + 10_000.0  # when the last rank has come
        for pid, wire in enumerate(wires, 1):
            span = {"pid": pid, "tid": rank}
            submitted = everybody if late else everybody - LATE
            found += [{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": submitted, **span}]
            found += [{"ph": "E", "ts": everybody, **span}, {"ph": "B", "name": "ALLREDUCE", "ts": everybody, **span}]
            done = everybody + wire
            found += [{"ph": "E", "ts": done, "args": {"dtype": "float32", "shape": "[8]"}, **span}]
    return found


@pytest.fixture
def files(tmp_path):
    paths = []
    for rank in range(3):
        path = tmp_path / ("t.json" if rank == 0 else f"t.{rank}.json")
        path.write_text(json.dumps(events(rank, ["grad_0", "grad_1", "head"], [500.0, 400.0, 4000.0], rank == 2)))
        paths.append(path)
    return paths


def run(*words):
    """Run the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = timeline.main(list(map(str, words)))
    return types.SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def test_the_slow_rank_and_the_slow_layer_are_named(files):
    result = run("report", *files)
    assert result.returncode == 0, result.stderr
    said = result.stdout
    assert "9 steps of 20.0 ms (median); a step begins with 'grad_0'" in said
    assert re.search(r"^ +0 +50\.0% +30\.0% +20\.0%$", said, re.MULTILINE)
    assert re.search(r"^ +2 +80\.0% +0\.0% +20\.0%$", said, re.MULTILINE)
    assert "2  30 times (100%), 6.00 ms after the one before" in said
    assert "Rank 2 keeps the others waiting: 30% of their steps." in said
    slowest = said[said.index("slowest operations") :].splitlines()
    assert re.search(r"^head +4\.000 +4\.000 +30  float32 \[8\]$", slowest[1])


def test_what_every_step_does_comes_before_what_is_done_once():
    every_step = [
        timeline_report.Operation("grad", "ALLREDUCE", 0, 9e3 * i, 9e3 * i, 9e3 * i + 4e3) for i in range(1, 31)
    ]
    once = timeline_report.Operation("broadcast", "BROADCAST", 0, 0.0, 4e4, 5e4)
    report = timeline_report.analyze([once, *every_step])
    assert [one.name for one in report.slowest] == ["grad", "broadcast"]


def test_a_merged_file_says_the_same(files, tmp_path):
    assert run("merge", tmp_path / "all.json", *files).returncode == 0
    assert run("report", tmp_path / "all.json").stdout == run("report", *files).stdout


def test_one_rank_alone(files):
    said = run("report", files[0]).stdout
    assert "last to submit" not in said
    assert "slowest operations" in said


def test_an_empty_timeline(tmp_path):
    (tmp_path / "t.json").write_text("[]")
    assert run("report", tmp_path / "t.json").stdout == "no operations: the timeline is empty\n"
    (tmp_path / "t.json").write_text("{}")
    broken = run("report", tmp_path / "t.json")
    assert broken.returncode == 2
    assert "is no timeline" in broken.stderr


class Page(html.parser.HTMLParser):
    """Counts the elements of a page, and keeps what it would load."""

    def __init__(self):
        super().__init__()
        self.elements, self.loads = [], []

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset", "action")]


def test_the_page_holds_its_pictures_and_loads_nothing(files, tmp_path):
    out = tmp_path / "report.html"
    assert run("report", *files, "--html", out).returncode == 0
    page = Page()
    page.feed(out.read_text())
    assert page.loads == []
    assert page.elements.count("svg") == 3
    assert page.elements.count("rect") == 3 * 3 * 9
    assert not {"script", "link", "img", "iframe"} & set(page.elements)
    assert "url(" not in out.read_text()
    # The page must not take the place of an input.
    refused = run("report", *files, "--html", files[1])
    assert refused.returncode == 2
    assert "is also one of the files to read" in refused.stderr


def test_names_are_text_on_the_page():
    operation = timeline_report.Operation("<script>&", "ALLREDUCE", 0, 0.0, 1.0, 2.0)
    page = timeline_page.as_page(timeline_report.analyze([operation]))
    assert "<script>" not in page
    assert "&lt;script&gt;&amp;" in page


def test_many_steps_share_bars():
    name = "g"
    runs = [timeline_report.Operation(name, "ALLREDUCE", 0, 9.0 * i, 9.0 * i + 2, 9.0 * i + 5) for i in range(1001)]
    page = Page()
    page.feed(timeline_page.as_page(timeline_report.analyze(runs)))
    assert page.elements.count("rect") == 3 * 200


def test_examples():
    for module in (timeline, timeline_report, timeline_page):
        result = doctest.testmod(module)
        assert result.attempted > 0
        assert result.failed == 0


@pytest.mark.parametrize("name", ["DistributedGradientTape.in_sync", "check_in_sync"])
def test_the_report_leaves_out_the_check_of_variables(tmp_path, name):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(events(0, [name, "grad_0"], [500.0, 400.0], False)))
    said = run("report", path).stdout
    assert "a step begins with 'grad_0'" in said
    assert "in_sync" not in said
