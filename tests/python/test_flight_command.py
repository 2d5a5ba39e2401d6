# SPDX-License-Identifier: Apache-2.0
"""python -m horovod.flight: what it reads, what it prints, and which processes it looks at."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from flight_folder import Folder, blamed, op, peer
from horovod.flight import __main__ as command
from horovod.flight import diagnose, load


@pytest.fixture
def job(tmp_path):
    return Folder(tmp_path, 4)


def test_what_is_broken_is_read_as_far_as_it_goes(job):
    for rank in range(4):
        job.dump(rank, op("a"))
    path = job.path / "flight.3.json"
    path.write_text(path.read_text()[:-60])
    (job.path / "flight.2.json").write_text("")
    (job.path / "flight.x.json").write_text("[]\n")
    (job.path / "flight.1.json.part").write_text("half")
    assert sorted(load(job.path)) == [0, 1, 3]
    assert not load(job.path)[3].whole
    assert blamed(job.verdict()) == ("no_dump", [2])


def run(*arguments):
    argv = [sys.executable, "-m", "horovod.flight", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_prints_a_short_block(job):
    for rank in (0, 1, 3):
        job.dump(rank, op("a"), peers=[peer(2)])
    result = run(job.path)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == 'Stuck: ALLREDUCE "a", for 60 s'
    assert lines[1].startswith("At fault: rank 2: left no dump")
    assert lines[2] == "Waiting: ranks 0, 1, 3"
    assert lines[-1] == "From the dumps of 3 of 4 ranks."
    assert len(lines) <= 8


def test_the_command_writes_json(job):
    for rank in (0, 1, 3):
        job.dump(rank, op("a"))
    verdict = json.loads(run(job.path, "--json").stdout)
    assert verdict["cause"] == "no_dump"
    assert verdict["ranks"] == [2]
    assert verdict["dumped"] == [0, 1, 3]


def test_the_command_says_what_it_could_not_read(job):
    for rank in (0, 1, 3):
        job.dump(rank, op("a", "done", 61), op("a"), end=rank != 3)
    (job.path / "flight.2.json").write_text("not a dump\n")
    lines = run(job.path).stdout.splitlines()
    assert lines[-3:] == [
        "From the dumps of 3 of 4 ranks.",
        "Truncated: the dump of rank 3 has 2 of 2 operations.",
        "Not readable: flight.2.json: it does not begin with the header of a dump.",
    ]
    verdict = json.loads(run(job.path, "--json").stdout)
    assert verdict["truncated"] == [3]
    assert list(verdict["unreadable"]) == ["flight.2.json"]


def test_the_command_says_when_there_is_nothing(tmp_path):
    def says():
        result = run(tmp_path / "folder")
        assert (result.returncode, result.stdout) == (2, "")
        return result.stderr

    assert "cannot list" in (text := says())
    assert "No such file or directory" in text
    (tmp_path / "folder").write_text("")
    assert "Not a directory" in says()
    (tmp_path / "folder").unlink()
    (tmp_path / "folder").mkdir()
    assert "no dumps (flight.RANK.json) in" in says()
    (tmp_path / "folder" / "flight.0.json").write_text("")
    (tmp_path / "folder" / "flight.1.json").mkdir()
    text = says()
    assert "none of the 2 dumps" in text
    assert "flight.0.json: it does not begin with the header" in text
    assert "flight.1.json: Is a directory" in text


def test_processes_of_this_machine_are_looked_at(job):
    """A stopped process is told from a dead one, without its help."""
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        os.kill(child.pid, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        here = {"host": "here", "boot": boot, "wall_ns": time.time_ns()}
        known = [{"peer": 2, "host": "here", "pid": child.pid}]
        for rank in (0, 1, 3):
            job.dump(rank, op("a"), peers=known, **here)
        dumps = load(job.path)
        assert blamed(diagnose(dumps, probe=command.local_probe(dumps))) == ("stopped", [2])
    finally:
        child.kill()
        child.wait()
    assert blamed(diagnose(dumps, probe=command.local_probe(dumps))) == ("dead", [2])


@pytest.mark.parametrize("waited", [62.0, 0.5])
def test_a_stall_that_resolved_is_named_by_its_operation(job, waited):
    for rank in range(4):
        late = op("late", "done", ago=5.0, position=7)
        if rank != 2:
            late["ns"]["submitted"] -= int(waited * 10**9)
        job.dump(rank, op("other", "done", position=6), late, op("after", "done", position=8), reason="shutdown")
    said = run(job.path).stdout
    assert said.startswith("No operation is stuck.\n")
    named = 'rank 0 waited 62.0 s for ALLREDUCE "late", which rank 2 submitted last'
    assert (named in said) == (waited > 1)
