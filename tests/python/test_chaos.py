# SPDX-License-Identifier: Apache-2.0
"""The fault harness: that jobs come through it, and that it would notice if they did not."""

import dataclasses
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import time

import horovod.numpy as hvd
import numpy as np
import pytest
from horovod.chaos import path, plan, system
from horovod.chaos.operations import WEIGHTS, Maker, Oracle
from horovod.chaos.plan import Fault, Options, plan_job
from horovod.chaos.soak_report import Sample, Soak, percentile
from horovod.chaos.verdict import BLAME, HANG, LEAK, OTHER, WRONG, Injection, Member, Outcome, judge
from horovod.chaos.worker import named_rank
from horovod.chaos.workload import Workload, WrongResult


def chaos(*arguments, timeout=280, **options):
    command = [sys.executable, "-m", "horovod.chaos", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)


def test_40_faults(tmp_path):
    report = tmp_path / "report.json"
    result = chaos("--faults", 40, "--report", report, env=dict(os.environ, TMPDIR=str(tmp_path)))
    assert result.returncode == 0, result.stdout + result.stderr
    found = json.loads(report.read_text())
    assert found["faults"] >= 40
    assert not any(found["problems"].values())
    assert found["checked"] > 100
    assert os.listdir(tmp_path) == ["report.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="networks and disks of our own need root")
def test_extended_faults(tmp_path):
    report = tmp_path / "report.json"
    words = ("--faults", 12, "--seed", 3, "--only", ",".join(plan.EXTENDED), "--report", report)
    result = chaos(*words, env=dict(os.environ, TMPDIR=str(tmp_path)))
    assert result.returncode == 0, result.stdout + result.stderr
    found = json.loads(report.read_text())
    assert found["faults"] >= 12
    assert os.listdir(tmp_path) == ["report.json"]


def test_soak(tmp_path):
    report = tmp_path / "report.json"
    chaos("--soak", 3, "--np", 2, "--report", report)
    found = json.loads(report.read_text())
    assert found["checked"] > 0
    assert found["threads"]["before"] == found["threads"]["after"]
    assert not [problem for problem in found["problems"] if "rank" in problem]  # times may do what they like here


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--only", "sigkill,pest"], "'pest' is none of sigkill, sigsegv"),
        (["--np", "1"], "'1': give a number of ranks from 2 to 16"),
        (["--np", "5-3"], "'5-3': give a number"),
        (["--faults", "0"], "'0' is not a whole number above 0"),
        (["--transport", "pigeon"], "'pigeon' is none of shm, tcp, hosts"),
        (["--report", "x.pdf"], "ends neither in .md nor in .json"),
        (["--report", "/nowhere/x.md"], "there is no folder /nowhere"),
        (["--job", "-1"], "-1 is below 0"),
        (["--soak", "3", "--faults", "10"], "argument --faults: --soak is one job without faults"),
        (["--soak", "3", "--extended"], "argument --extended: --soak is one job without faults"),
        (["--soak", "3", "--only", "sigkill"], "argument --only: --soak is one job without faults"),
        (["--only", "sockets", "--transport", "shm"], "sockets are used by the transports tcp and hosts only"),
    ],
)
def test_wrong_usage_is_explained(arguments, text):
    result = chaos(*arguments)
    assert result.returncode == 2
    assert text in result.stderr


def test_an_interrupted_run_reports_and_leaves_nothing(tmp_path):
    command = [sys.executable, "-m", "horovod.chaos", "--faults", "100000"]
    run = subprocess.Popen(command, env=dict(os.environ, TMPDIR=str(tmp_path)), stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not list(tmp_path.glob("*/job*/worker*")) and time.monotonic() < until:
        time.sleep(0.01)
    children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    run.send_signal(signal.SIGTERM)
    assert re.search(r"^\d+ faults in \d+ rounds", run.communicate(timeout=60)[0], re.MULTILINE)
    assert run.returncode == 1
    assert len(children) == 2
    assert not [child for child in children if pathlib.Path(f"/proc/{child}").exists()]
    assert not list(tmp_path.iterdir())


def test_a_seed_says_what_happens():
    options = Options(seed=5)
    assert plan_job(options, 3) == plan_job(options, 3)
    assert plan_job(options, 3) != plan_job(options, 4)
    rounds = [one for job in range(60) for one in plan_job(options, job)]
    faults = [fault for one in rounds for fault in one.faults]
    assert {fault.kind for fault in faults} == set(plan.KINDS)
    assert {one.transport for one in rounds} == set(plan.TRANSPORTS)
    assert {fault.phase for fault in faults} == {"init", "run", "shutdown"}
    assert options.repeat(3) == "python -m horovod.chaos --seed 5 --job 3 --np 2-4"


def test_extended_faults_are_planned_too():
    options = Options(seed=5, only=tuple(plan.EVERY_KIND))
    rounds = [one for job in range(60) for one in plan_job(options, job)]
    assert {fault.kind for one in rounds for fault in one.faults} == set(plan.EVERY_KIND)
    for one in rounds:
        on_path = [fault for fault in one.faults if fault.kind in plan.ON_PATH]
        assert (one.transport == "path") == bool(on_path)
        assert all(fault.rank == plan.NO_RANK for fault in on_path)
    assert options.repeat(3) == "python -m horovod.chaos --seed 5 --job 3 --np 2-4 --extended"


def test_a_packet_that_was_changed_has_the_right_checksum():
    def total(data):
        return sum(struct.unpack(f">{len(data) // 2}H", data)) % 0xFFFF

    for length in (41, 60, 1001):
        packet = bytes((i * 7 + length) % 251 for i in range(length))
        for where in (40, length - 1):
            changed = path.flip(packet, 20, where)
            even = length % 2 * b"\0"
            assert changed[where] != packet[where]
            assert len(changed) == length
            # Both have the same sum, checksums included.
            assert total(changed[20:] + even) == total(packet[20:] + even)


def a_round(*faults, size=3):
    return dataclasses.replace(plan_job(Options(), 0)[0], size=size, transport="tcp", faults=list(faults))


KILL = Fault(0, "sigkill", 2, "run", "self")
DELAY = Fault(0, "delay", 2, "run", "self")
CUT = Fault(0, "sockets", 2, "run", "self", detail="close one")
PATH_CUT = Fault(0, "cut", plan.NO_RANK, "run", "driver")
TENSORS = Fault(0, "tensors", plan.NO_RANK, "run", "driver")
DONE = {"outcome": "done", "where": "run", "at": 5.0}
LOST = "Horovod has been shut down: rank {} (host a, pid 7) died during allreduce"


def error(rank, kind="HorovodInternalError", **more):
    return {"outcome": "error", "where": "run", "at": 5.0, "type": [kind], "error": LOST.format(rank), **more}


def judged(fault, downs, status=None, happened=True):
    members = [Member(rank, rank, down=down, ports=[100 + rank]) for rank, down in enumerate(downs)]
    members[2].status = status if fault.rank >= 0 else None
    injections = [Injection(fault, 4.0, [100] if fault.kind == "sockets" else [])] if happened else []
    problems, blames = judge(Outcome(a_round(fault), members, injections, []))
    return [problem.kind for problem in problems], blames


def test_what_is_as_it_must_be_is_no_problem():
    problems, blames = judged(KILL, [error(2), error(2), None], status=-9)
    assert problems == []
    assert [(blame.kind, blame.right, blame.seconds) for blame in blames] == [("sigkill", True, 1.0)] * 2
    assert judged(DELAY, [DONE] * 3) == ([], [])
    assert judged(CUT, [error(2), error(0), error(0)])[0] == []
    assert judged(KILL, [error(2, where="init"), error(0), None], status=-9)[0] == []
    assert judged(dataclasses.replace(CUT, phase="shutdown"), [DONE] * 3)[0] == []
    assert judged(PATH_CUT, [error(2), error(2), error(0)])[0] == []
    assert judged(TENSORS, [{**error(2), "outcome": "wrong"}, error(0), error(0)])[0] == []


@pytest.mark.parametrize(
    ("expected", "fault", "downs", "status"),
    [
        (BLAME, KILL, [error(1), error(2), None], -9),
        (BLAME, CUT, [error(1), error(2), error(0)], None),
        (BLAME, PATH_CUT, [error(1), error(2), error(0)], None),
        (OTHER, KILL, [DONE, error(2), None], -9),
        (OTHER, KILL, [error(2, "ValueError"), error(2), None], -9),
        (OTHER, DELAY, [error(2), DONE, DONE], None),
        (OTHER, DELAY, [DONE, DONE, None], -11),
        (OTHER, CUT, [error(2), error(2), DONE], None),
        (OTHER, KILL, [error(2, shutdown_error="OSError: x"), error(2), None], -9),
        (LEAK, KILL, [error(2, leaks=["descriptors ['socket:']"]), error(2), None], -9),
        (WRONG, KILL, [{**error(2), "outcome": "wrong"}, error(2), None], -9),
    ],
)
def test_what_must_not_be_is_noticed(expected, fault, downs, status):
    assert judged(fault, downs, status)[0] == [expected]


def test_a_hang_and_late_writes_are_noticed():
    members = [Member(0, 0, down=DONE, late=["memory changed"]), Member(1, 1, hung=True), Member(2, 2, down=DONE)]
    problems, _ = judge(Outcome(a_round(DELAY), members, [], []))
    assert [problem.kind for problem in problems] == [WRONG, HANG]


def test_the_rank_that_an_error_names():
    assert named_rank(LOST.format(12)) == 12
    assert named_rank("ranks 3, 4 of 5 did not come") == 3
    assert named_rank("out of memory") is None


@pytest.mark.usefixtures("engine")
def test_a_wrong_result_is_noticed():
    workload = Workload("seed", 0, [hvd.global_process_set], [[0]], Oracle())
    for _ in range(20):
        workload.window()
    assert workload.checked > 100
    op = next(op for op in workload.maker.window(0, 0, 50, 1) if op.kind == "allreduce" and op.counts[0] > 10)
    right = workload.oracle.result(op, 0, [[0]]).copy()
    workload._check(op, right, None)
    with pytest.raises(WrongResult, match="1 of"):
        workload._check(op, np.concatenate([right[:-1], right[-1:] + 1]), None)
    with pytest.raises(WrongResult, match="instead of"):
        workload._check(op, right[:-1], None)
    array = np.ones(3)
    workload.kept.append(("x", array, array.copy()))
    workload.check_kept()
    array[1] = 2
    with pytest.raises(WrongResult, match="memory of x changed"):
        workload.check_kept()


def test_inputs_suffice_for_every_operation():
    oracle = Oracle()
    sets = [list(range(8)), [1, 3]]
    ops = [op for number in range(100) for op in Maker("seed", sets).window(number, number * 12, 12, 2)]
    assert {op.kind for op in ops} == set(WEIGHTS)
    for op in ops:
        for member in range(len(op.counts)):
            rank = sets[op.set_index][-1]
            assert oracle.input(op, rank, member, sets).dtype == op.dtype
            oracle.result(op, rank, sets, member)


def test_traces_of_a_process():
    before = system.Traces.look()
    assert system.Traces.look().more_than(before) == []
    read, write = os.pipe()
    assert system.Traces.look().more_than(before) == ["descriptors ['pipe:', 'pipe:']"]
    os.close(read)
    os.close(write)


def sample(time=1.0, **more):
    values = {"private": 1, "shared": 1, "descriptors": 9, "threads": 3, "checked": 100, **more}
    return Sample(**values, p50={"barrier": time}, p99={"barrier": time * 2})


@pytest.mark.parametrize(
    ("expected", "late"),
    [
        ([], {}),
        ([], {"time": 1.05}),
        (["p99 grew by 20%"], {"time": 1.2}),
        (["descriptors grew from 9 to 10"], {"descriptors": 10}),
        (["shared memory grew from 0.0 to 64.0 MiB"], {"shared": 64 << 20}),
    ],
)
def test_growth_is_noticed(expected, late):
    ranks = [[sample()] * 30, [sample()] * 15 + [sample(**late)] * 15]
    if "time" in late:  # of all ranks: one alone does not make an operation slower
        ranks[0] = ranks[1]
    found = Soak(60.0, "shm", ranks, [])
    assert found.problems() == expected
    assert ("PROBLEM" in found.text()) == bool(expected)
    assert json.loads(found.as_json())["problems"] == expected
    assert percentile([1.0, 2.0, 3.0, 4.0], 99) == 4.0


def test_growth_on_a_busy_machine_names_other_programs():
    ranks = [[sample()] * 15 + [sample(time=1.2)] * 15] * 2
    (problem,) = Soak(60.0, "shm", ranks, [], others=1.52).problems()
    assert problem.startswith("p99 grew by 20%; other programs used 1.5 of ")
