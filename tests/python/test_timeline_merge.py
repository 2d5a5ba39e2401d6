# SPDX-License-Identifier: Apache-2.0
"""python -m horovod.timeline merge: several ranks' files become one, on one clock."""

import doctest
import json
import os
import subprocess
import sys

import pytest
from horovod import timeline


def file(rank, *events, boot="", monotonic=None, wall=0, offset=0):
    clock = {"rank": rank, "wall_base_ns": wall, "clock_offset_ns": offset, "boot": boot}
    if monotonic is not None:
        clock["monotonic_base_ns"] = monotonic
    head = {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": f"rank {rank}"}}
    return [head, {"ph": "M", "name": "hvd_clock", "pid": 0, "args": clock}, *events]


def tensor(pid, name):
    return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}


def pair(pid, rank, ts):
    begin = {"ph": "B", "name": "ALLREDUCE", "ts": ts, "pid": pid, "tid": rank}
    return [begin, {"ph": "E", "ts": ts + 1, "pid": pid, "tid": rank}]


def test_a_tensor_is_one_process_and_each_rank_a_thread_of_it():
    # The ranks met the tensors in different orders.
    first = file(0, tensor(1, "a"), *pair(1, 0, 5), tensor(2, "b"), *pair(2, 0, 7))
    second = file(1, tensor(1, "b"), *pair(1, 1, 7), tensor(2, "a"), *pair(2, 1, 5))
    merged = timeline.merge([first, second])
    names = {e["pid"]: e["args"]["name"] for e in merged if e.get("name") == "process_name"}
    assert names == {0: "job", 2: "a", 3: "b"}
    begins = [(names[e["pid"]], e["tid"], e["ts"]) for e in merged if e["ph"] == "B"]
    assert sorted(begins) == [("a", 0, 5), ("a", 1, 5), ("b", 0, 7), ("b", 1, 7)]
    lanes = [(e["pid"], e["tid"], e["args"]["name"]) for e in merged if e.get("name") == "thread_name"]
    assert sorted(lanes) == [(2, 0, "rank 0"), (2, 1, "rank 1"), (3, 0, "rank 0"), (3, 1, "rank 1")]


def test_no_rank_has_the_number_of_a_tensor():
    """A viewer would take it, and rank 0, for the main thread of that tensor, and draw them as one."""
    merged = timeline.merge([file(rank, tensor(1, "a"), *pair(1, rank, 5)) for rank in range(4)])
    assert not {e["pid"] for e in merged if e["ph"] == "B"} & {e["tid"] for e in merged if e["ph"] == "B"}


def test_hosts_are_aligned_by_wall_clock_and_measured_offset():
    first = file(0, *pair(0, 0, 10.0), boot="x", monotonic=5, wall=1_000_000)
    second = file(1, *pair(0, 1, 10.0), boot="y", monotonic=900_000, wall=1_500_000, offset=-300_000)
    begins = {e["tid"]: e["ts"] for e in timeline.merge([first, second]) if e["ph"] == "B"}
    assert begins == {0: 10.0, 1: 210.0}


def test_an_offset_that_was_measured_later_counts():
    first = file(0, *pair(0, 0, 10.0), wall=1_000_000)
    second = file(1, *pair(0, 1, 10.0), wall=1_500_000) + file(1, wall=1_500_000, offset=-300_000)
    begins = {e["tid"]: e["ts"] for e in timeline.merge([first, second]) if e["ph"] == "B"}
    assert begins == {0: 10.0, 1: 210.0}


def test_ranks_of_one_host_are_aligned_by_its_monotonic_clock():
    """Between the two starts the wall clock was set back by a second."""
    first = file(0, *pair(0, 0, 10.0), boot="x", monotonic=1_000_000, wall=10**9)
    second = file(1, *pair(0, 1, 10.0), boot="x", monotonic=1_250_000, wall=250_000)
    begins = {e["tid"]: e["ts"] for e in timeline.merge([first, second]) if e["ph"] == "B"}
    assert begins == {0: 10.0, 1: 260.0}


def test_a_file_without_clock_is_placed_by_its_start_time():
    head = {"ph": "M", "name": "process_name", "pid": 0, "args": {"start_time_since_epoch_in_micros": 3}}
    merged = timeline.merge([file(0, *pair(0, 0, 1.0), wall=1000), [head, {"ph": "i", "name": "mark", "ts": 1}]])
    assert [(e["ts"], e["tid"]) for e in merged if e.get("name") == "mark"] == [(3.0, 1)]


def run(*arguments):
    argv = [sys.executable, "-m", "horovod.timeline", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_the_command(tmp_path):
    for rank in range(2):
        (tmp_path / f"t.{rank}.json").write_text(json.dumps(file(rank, tensor(1, "a"), *pair(1, rank, 5))))
    out = tmp_path / "out.json"
    result = run("merge", out, tmp_path / "t.0.json", tmp_path / "t.1.json")
    assert result.returncode == 0, result.stderr
    assert len([e for e in json.loads(out.read_text()) if e["ph"] == "B"]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "t.0.json", "t.1.json"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1"),
        ("[1, 2]", "not a list of events"),
        ("{}", "not a list of events"),
        ("[{},", "line 1"),
        ("[{}]", "event 0 has no phase (ph)"),
        ('[{"ph": "B"}]', 'event 0 has no name: {"ph": "B"}'),
        ('[{"ph": "B", "name": "a", "ts": 1}, {"ph": "E"}]', "event 1 has no time (ts)"),
        ('[{"ph": "X", "name": "a", "ts": "1"}]', "event 0 has no time (ts)"),
        ('[{"ph": "M", "name": "process_name", "pid": 1}]', "event 0 has no args"),
    ],
)
def test_what_is_no_timeline_is_named(tmp_path, text, why):
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"broken\.json is no timeline") as raised:
        timeline.read(path)
    assert why in str(raised.value)


def test_files_that_are_given_twice(tmp_path):
    paths = [tmp_path / "t.json", tmp_path / "t.1.json"]
    for rank, path in enumerate(paths):
        path.write_text(json.dumps(file(rank, tensor(1, "a"), *pair(1, rank, 5))))
    before = [path.read_text() for path in paths]
    link = tmp_path / "link.json"
    link.symlink_to(paths[0])
    for arguments, text in (
        ([paths[0], *paths], "is also one of the files to read"),
        ([link, *paths], "is also one of the files to read"),
        ([tmp_path / "out.json", paths[0], paths[0]], "are the same file"),
        ([tmp_path / "out.json", *paths, link], "are the same file"),
    ):
        result = run("merge", *arguments)
        assert result.returncode == 2
        assert text in result.stderr
    assert [path.read_text() for path in paths] == before


def test_a_file_that_is_there_is_not_overwritten(tmp_path):
    # The name of the output was forgotten: the first of the ranks' files stands in its place.
    paths = [tmp_path / "t.json", tmp_path / "t.1.json"]
    for rank, path in enumerate(paths):
        path.write_text(json.dumps(file(rank, tensor(1, "a"), *pair(1, rank, 5))))
    before = paths[0].read_text()
    result = run("merge", *paths)
    assert result.returncode == 2
    assert "t.json exists already: give the name of a new file first, or --overwrite" in result.stderr
    assert paths[0].read_text() == before
    (tmp_path / "old.json").write_text("[]")
    assert run("merge", "--overwrite", tmp_path / "old.json", *paths).returncode == 0
    assert len(json.loads((tmp_path / "old.json").read_text())) > 2


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "folder").mkdir()
    link = tmp_path / "out.json"
    link.symlink_to("folder/there.json")
    for events in ([], file(0)):
        timeline.write(link, events)
        assert link.is_symlink()
        assert json.loads((tmp_path / "folder" / "there.json").read_text()) == events


def test_devices_and_pipes_are_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(ValueError, match="is no regular file"):
        timeline.write(path, [])
    assert path.is_fifo()


def test_examples():
    assert doctest.testmod(timeline).failed == 0
