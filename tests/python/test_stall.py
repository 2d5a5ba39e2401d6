# SPDX-License-Identifier: Apache-2.0
"""What a user sees while some rank does not come: one report, on one rank, that says why; time-outs that say who."""

import contextlib
import os
import re
import subprocess
import sys

import fault_matrix
import pytest
import spawn

START = """
import os, signal, sys, time
import numpy as np, horovod.numpy as hvd
hvd.init()
rank, size = hvd.rank(), hvd.size()
one = np.ones(4, np.float32)
hvd.allreduce(one, name="known")
"""


def run(body, ranks, **env):
    env = {"HOROVOD_HEARTBEAT_TIMEOUT_SECONDS": "60", **env}
    command = [sys.executable, "-c", START + body]
    results = spawn.spawn(command, ranks, env=env, timeout=90, preloaded="numpy")
    return [result.output for result in results], [result.returncode for result in results]


def reports(outputs):
    return [rank for rank, text in enumerate(outputs) for _ in re.findall("Stalled for", text)]


@pytest.mark.parametrize(("victim", "shm"), [(0, True), (2, False)])
def test_one_block_on_the_lowest_rank_and_a_line_each_time_after(victim, shm):
    body = f"""
if rank == {victim}:
    time.sleep(7)
hvd.allreduce(one, name="known")
hvd.shutdown()
"""
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "2"}
    if not shm:
        env["HOROVOD_DISABLE_SHM"] = "1"
    outputs, codes = run(body, 3, **env)
    assert codes == [0, 0, 0], outputs
    assert reports(outputs) == [0], outputs
    assert outputs[1:] == ["", ""], outputs
    text = outputs[0]
    assert re.search(rf"Rank {victim} \(host .*\) is busy in its own code", text)
    assert "missing ranks: rank" in text
    again = re.findall(rf"Still stalled after \d+ s, as reported before: rank {victim} is busy in its own code", text)
    assert 1 <= len(again) <= 3


@contextlib.contextmanager
def busy(core, programs):
    """Programs that share a core with whoever is on it, so that a thread that gives it away gets it back late."""
    command = ["taskset", "-c", str(core), "sh", "-c", "while :; do :; done"]
    others = [subprocess.Popen(command) for _ in range(programs)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_a_report_comes_in_time_where_other_programs_take_the_core():
    core = max(os.sched_getaffinity(0))
    body = f"""
os.sched_setaffinity(0, {{{core}}})
if rank == 2:
    time.sleep(5)
hvd.allreduce(one, name="known")
hvd.shutdown()
"""
    with busy(core, 30):
        outputs, codes = run(body, 3, HOROVOD_STALL_CHECK_TIME_SECONDS="0.5")
    assert codes == [0, 0, 0], outputs
    assert reports(outputs) == [0], outputs


@pytest.mark.parametrize("early", [0, 1])
def test_a_set_that_is_removed_while_one_rank_has_an_operation_on_it(early):
    """The early rank waits inside remove_process_set: it is not in its own code, and it is not to blame."""
    late = 1 - early
    body = f"""
some = hvd.add_process_set([0, 1])
if rank == {early}:
    handle = hvd.allreduce_async(one, name="x", process_set=some)
hvd.barrier()
try:
    hvd.remove_process_set(some)
except hvd.HorovodInternalError as error:
    print("SEEN", error)
    print("FAILED", hvd.counters()["operations"]["process_set"]["failed"])
os._exit(0)
"""
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2.5"}
    outputs, _ = run(body, 3, HOROVOD_DYNAMIC_PROCESS_SETS="1", **env)
    text = outputs[0]
    assert re.search(rf"'allreduce.x' on process set 1 (\(and 1 more\) )?waits for rank {late}\.", text), outputs
    assert f"Rank {early} is in remove_process_set of process set 1, and waits there for its own operations" in text
    assert re.search(
        rf"Rank {late} \(host .*\) is in remove_process_set of process set 1 without having submitted "
        rf"allreduce 'allreduce.x' on process set 1, which rank {early} waits for",
        text,
    ), text
    assert reports(outputs) == [0], "the later ones are a line each"
    for output in outputs:
        assert re.search(rf"SEEN .*rank {late} .*did not submit what the others wait for", output), outputs
        assert "FAILED 1" in output


@pytest.mark.row("k8")
def test_two_that_wait_are_one_block():
    body = """
if rank == 1:
    time.sleep(4)
names = ["known", "fresh"] if rank == 0 else ["fresh", "known"]
for handle in [hvd.allreduce_async(one, name=name) for name in names]:
    hvd.synchronize(handle)
hvd.shutdown()
"""
    outputs, codes = run(body, 3, HOROVOD_STALL_CHECK_TIME_SECONDS="0.7")
    assert codes == [0, 0, 0]
    assert reports(outputs) == [0], outputs
    assert outputs[0].count("Still stalled after") >= 2


def test_the_stop_names_rank_and_cause_on_every_rank():
    body = """
try:
    if rank == 2:
        time.sleep(9)
    hvd.allreduce(one, name="known")
except hvd.HorovodInternalError as error:
    print("SEEN", error)
os._exit(0)
"""
    outputs, _ = run(body, 3, HOROVOD_STALL_CHECK_TIME_SECONDS="1", HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="2")
    for rank in (0, 1):
        assert re.search(
            r"SEEN .* rank 2 \(host .*\) did not submit what the others wait for: rank 2 is busy", outputs[rank]
        )
        assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS" in outputs[rank]


def test_a_stop_before_the_warning_is_ignored_with_a_warning():
    body = """
if rank == 1:
    time.sleep(2.5)
hvd.allreduce(one, name="known")
hvd.shutdown()
"""
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "30", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "1"}
    outputs, codes = run(body, 2, **env)
    assert codes == [0, 0]
    assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=1 is ignored" in outputs[0]
    assert outputs[1] == ""


def test_the_check_can_be_switched_off():
    body = """
if rank == 1:
    time.sleep(2.5)
hvd.allreduce(one, name="known")
hvd.shutdown()
"""
    outputs, codes = run(body, 2, HOROVOD_STALL_CHECK_TIME_SECONDS="0.5", HOROVOD_STALL_CHECK_DISABLE="1")
    assert codes == [0, 0]
    assert outputs == ["", ""]


def test_ranks_that_work_while_one_has_joined_are_no_stall():
    body = """
if rank == 1:
    hvd.join()
else:
    for step in range(50):
        time.sleep(0.1)
        hvd.allreduce(one, name="known")
    hvd.join()
hvd.shutdown()
"""
    outputs, codes = run(body, 2, HOROVOD_STALL_CHECK_TIME_SECONDS="3")
    assert codes == [0, 0]
    assert outputs == ["", ""]


@pytest.mark.parametrize("name", ["known", "fresh"])
@pytest.mark.parametrize("victim", [0, 3])
def test_a_time_out_names_who_is_missing_on_every_rank(victim, name, tmp_path):
    """Only the sequencer, rank 0, knows who has sent it a new name: the others ask it, whatever its program does."""
    body = f"""
try:
    if rank != {victim}:
        hvd.allreduce(one, name="{name}")
except hvd.HorovodTimeoutError as error:
    print("SEEN", error)
open("{tmp_path}/%d" % rank, "w").close()
while len(os.listdir("{tmp_path}")) < size:  # who leaves changes what the others see
    time.sleep(0.02)
os._exit(0)
"""
    outputs, _ = run(body, 4, HOROVOD_OP_TIMEOUT_SECONDS="0.5")
    for rank in range(4):
        if rank != victim:
            assert f"timed out: rank {victim} has not submitted it" in outputs[rank], outputs


def test_the_right_rank_and_cause_are_named():
    """A small part of fault_matrix.py; docs/operate/stalls.md has the result of the whole."""
    trials = [fault_matrix.make_trial(seed=4, number=number) for number in range(16)]
    wrong = [outcome for outcome in fault_matrix.run_trials(trials, jobs=4) if not outcome.right]
    assert not wrong, wrong[0].describe()
