# SPDX-License-Identifier: Apache-2.0
"""horovod.chaos --elastic: elastic jobs survive faults, and its verdict sees what goes wrong."""

import re
import subprocess
import sys

import pytest
from horovod.chaos.elastic_verdict import judge

BLAME = "horovodrun: rank 1 (pid 11, localhost) was killed by signal 9; 1 rank go on from commit 2, 0.01 s"


def diary():
    """Ranks 0 and 1 take four samples in two steps; rank 1 is lost in the second, and rank 0 goes on."""

    def line(event, generation, pid, number, **facts):
        place = {"rank": pid - 10, "size": 3 - generation}
        return {"event": event, "generation": generation, "pid": pid, "number": number, **place, **facts}

    lines = []
    for pid in (10, 11):
        lines += [
            line("enter", 1, pid, 0, digest="a"),
            line("step", 1, pid, 1, epoch=0, samples=[pid - 10]),
            line("commit", 1, pid, 1, digest="b"),
            line("step", 1, pid, 2, epoch=0, samples=[pid - 8]),
        ]
    return [
        *lines,
        line("enter", 2, 10, 1, digest="b"),
        line("step", 2, 10, 2, epoch=0, samples=[2]),
        line("commit", 2, 10, 2, digest="c"),
        line("step", 2, 10, 3, epoch=0, samples=[3]),
        line("commit", 2, 10, 3, digest="d"),
        line("done", 2, 10, 3, digest="d"),
    ]


def test_the_verdict_on_a_good_job():
    assert judge(diary(), {11: 9}, 4, BLAME) == []


def test_the_verdict_on_a_program_that_ends_with_an_exit_code():
    errors = BLAME.replace("was killed by signal 9", "ended with exit code 1")
    assert judge(diary(), {11: 2}, 4, errors) == []
    assert judge(diary(), {11: 9}, 4, errors) == ["process 11 was killed by signal 9, but 2 is named"]
    assert "process 11 is blamed, but was not hurt" in judge(diary(), {}, 4, errors)


@pytest.mark.parametrize(
    ("place", "change", "expected"),
    [
        (2, {"digest": "x"}, "ranks differ"),
        (8, {"digest": "x"}, "generation 2 began commit 1 with other weights"),
        (8, {"number": 0, "digest": "a"}, "generation 2 began at commit 0, but 1 had returned"),
        (11, {"samples": []}, r"epoch 0 lost samples \[3\]"),
        (11, {"samples": [3, 3, 3]}, "epoch 0 has 6 samples of 4"),
        (13, {"pid": 11}, "process 10 was not hurt and did not finish"),
    ],
)
def test_the_verdict_finds(place, change, expected):
    events = diary()
    events[place].update(change)
    problems = judge(events, {11: 9}, 4, BLAME)
    assert len(problems) == 1
    assert re.search(expected, problems[0])


def test_the_verdict_knows_stopped_ranks_and_removed_slots():
    stopped = "rank 1 (pid 11, localhost) did not respond, so it was killed; 1 rank goes on from commit 2, 5.02 s"
    assert judge(diary(), {11: 19}, 4, stopped) == []
    assert judge(diary(), {11: 9}, 4, stopped) == ["process 11 was killed by signal 9, but 19 is named"]
    assert judge(diary(), {}, 4, "") == ["process 11 was not hurt and did not finish"]
    assert judge(diary(), {}, 4, "", finishes=False) == []
    assert judge(diary(), {}, 4, "rank 1 (pid 11, localhost) leaves, because its slot was removed; 1 rank") == []


def test_the_verdict_finds_wrong_blame():
    assert judge(diary(), {11: 15}, 4, BLAME) == ["process 11 was killed by signal 15, but 9 is named"]
    assert judge(diary(), {11: 9}, 4, "") == ["process 11 was killed by signal 9, but None is named"]
    assert "process 12 is blamed, but was not hurt" in judge(
        diary(), {11: 9}, 4, f"{BLAME} (pid 12) was killed by signal 9"
    )


def test_a_job_survives_faults():
    kinds = "sigkill,sigsegv,sigstop,hang,hosts,launcher"
    command = [sys.executable, "-m", "horovod.chaos", "--elastic", "--np", "3", "--faults", "6", "--only", kinds]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    faults, problems = re.match(r"(\d+) faults .*, (\d+) problems", result.stdout).groups()
    assert int(faults) >= 7
    assert int(problems) == 0
    for kind in ("sigstop", "hang", "launcher"):
        assert re.search(rf"^  {kind} +1 times, p50 \d+ ms, p99 \d+ ms", result.stdout, re.MULTILINE)
