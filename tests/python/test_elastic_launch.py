# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs of real processes: ranks are killed, stopped, added and removed, and the others go on."""

import collections
import os
import pathlib
import re
import signal
import subprocess
import sys

import horovod
import pytest
from launching import horovodrun, is_alive, started, wait_until

PROGRAM = pathlib.Path(__file__).parent / "elastic_program.py"
Line = collections.namedtuple("Line", "pid generation step rank size digest")


class Job:
    """An elastic job, and what its ranks have written."""

    def __init__(self, folder: pathlib.Path, *flags: str) -> None:
        self.folder = folder / "ranks"
        self.folder.mkdir()
        self.errors = folder / "stderr"
        # Ranks write often, so a rank that is silent for 3 s is stopped.
        self.flags = ["-x", "HOROVOD_HEARTBEAT_TIMEOUT_SECONDS=3", *flags, sys.executable, PROGRAM, self.folder]

    def __enter__(self):
        self._context = started(*self.flags, stderr=self.errors.open("w"))
        self.process = self._context.__enter__()
        return self

    def __exit__(self, *error):
        return self._context.__exit__(*error)

    def lines(self) -> list[Line]:
        """Return all whole lines of all ranks."""
        found = []
        for file in self.folder.iterdir():
            if file.name.isdigit():
                for line in file.read_text().splitlines(keepends=True):
                    if line.endswith("\n"):
                        generation, step, rank, size, digest = line.split()
                        found.append(Line(int(file.name), int(generation), int(step), int(rank), int(size), digest))
        return found

    def members(self, size: int, after: int = 0) -> dict[int, int]:
        """Wait until a view of this size, later than `after`, has committed on all ranks; return its pids by rank."""

        def newest() -> dict[int, int]:
            lines = self.lines()
            last = max((line.generation for line in lines), default=0)
            return {line.rank: line.pid for line in lines if line.generation == last > after and line.size == size}

        wait_until(lambda: len(newest()) == size)
        return newest()

    def said(self) -> str:
        """Return what horovodrun and the ranks have written to stderr."""
        return self.errors.read_text()

    def generation(self) -> int:
        """Return the number of the newest view."""
        return max(line.generation for line in self.lines())

    def finish(self, code: int = 0) -> str:
        """Let the ranks end; return what horovodrun and the ranks wrote to stderr."""
        (self.folder / "stop").touch()
        assert self.process.wait(timeout=60) == code, self.said()
        digests = collections.defaultdict(set)
        for line in self.lines():
            digests[line.generation, line.step].add(line.digest)
        assert all(len(one) == 1 for one in digests.values())
        return self.said()


def test_any_rank_may_be_killed_or_stopped_and_is_replaced(tmp_path):
    with Job(tmp_path, "-np", "3", "--min-np", "1") as job:
        members = job.members(3)
        for victim in (0, 2, 0):
            generation = job.generation()
            os.kill(members[victim], signal.SIGKILL)
            left = [pid for rank, pid in sorted(members.items()) if rank != victim]
            members = job.members(3, after=generation)
            # Survivors keep their processes and their order; the new process is the last rank.
            assert [members[0], members[1]] == left
            assert members[2] not in left
        generation = job.generation()
        os.kill(members[1], signal.SIGSTOP)
        after = job.members(3, after=generation)
        assert [after[0], after[1]] == [members[0], members[2]]
        assert not is_alive(members[1])
        err = job.finish()
    recoveries = re.findall(
        r"^horovodrun: rank \d \(pid \d+, localhost\) was killed by signal 9.*; \d ranks? go on from commit \d+, "
        r"\d+\.\d\d s$",
        err,
        re.MULTILINE,
    )
    assert len(recoveries) == 3
    assert f"rank 1 (pid {members[1]}, localhost) did not respond, so it was killed; 2 ranks go on" in err
    assert re.search(r"^horovodrun: 4 recoveries, 0 rollbacks, \d+\.\d s lost$", err, re.MULTILINE)


def test_a_rank_that_dies_between_two_views_is_not_waited_for(tmp_path):
    with Job(tmp_path, "-np", "3", "--min-np", "1", "--start-timeout", "300") as job:
        members = job.members(3)
        (job.folder / "fatal").touch()
        generation = job.generation()
        os.kill(members[2], signal.SIGKILL)
        after = job.members(3, after=generation)
        assert after[0] == members[0]
        assert members[1] not in after.values()
        err = job.finish()
    assert f"rank 1 (pid {members[1]}, localhost) was killed by signal 9" in err


@pytest.mark.parametrize("ranks", [2, 4])
def test_survivors_go_on_while_nobody_replaces_the_lost(tmp_path, ranks):
    with Job(tmp_path, "-np", ranks, "--min-np", "1") as job:
        members = job.members(ranks)
        (job.folder / "broken").touch()
        generation = job.generation()
        os.kill(members[0], signal.SIGKILL)
        after = job.members(ranks - 1, after=generation)
        assert [after[rank] for rank in range(ranks - 1)] == [members[rank] for rank in range(1, ranks)]
        job.finish()


def test_a_rank_that_hangs_in_its_program_is_left_behind_and_replaced(tmp_path):
    with Job(tmp_path, "-np", "3", "--min-np", "1", "--elastic-timeout", "3") as job:
        members = job.members(3)
        generation = job.generation()
        (job.folder / "hang").touch()
        wait_until(lambda: not (job.folder / "hang").exists())
        os.kill(members[0], signal.SIGKILL)
        wait_until(lambda: not is_alive(members[2]))
        after = job.members(3, after=generation + 1)
        assert after[0] == members[1]
        err = job.finish()
    assert f"rank 2 (pid {members[2]}, localhost) was not ready in time; it joins again when it is; " in err
    assert f"pid {members[2]} (slot 2 of localhost) was not ready in time and has not come back for 3 s" in err
    assert re.search(r'File ".*elastic_program.py", line \d+ in hang\n', err)


def test_hosts_come_and_go(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:3\n")
    with Job(tmp_path, "-np", "2", "--max-np", "4", "--min-np", "1", "--host-discovery-script", f"cat {hosts}") as job:
        grown = job.members(3)
        # The job begins with -np ranks, and uses the third slot when it runs.
        first = {line.rank: line.pid for line in job.lines() if line.generation == 1}
        assert first == {0: grown[0], 1: grown[1]}
        hosts.write_text("localhost:9\n")
        larger = job.members(4)
        assert [larger[rank] for rank in range(3)] == [grown[rank] for rank in range(3)]
        hosts.write_text("nothing but garbage\n")
        wait_until(lambda: "the list of hosts stays as it is" in job.said())
        hosts.write_text("localhost:1\n")
        assert job.members(1) == {0: first[0]}
        wait_until(lambda: not any(is_alive(larger[rank]) for rank in (1, 2, 3)))
        err = job.finish()
    assert "joins; 4 ranks go on from commit" in err
    assert "leaves, because its slot was removed; " in err
    assert "recover" not in err


def test_a_job_that_loses_all_ranks_fails(tmp_path):
    with Job(tmp_path, "-np", "2", "--min-np", "1") as job:
        members = job.members(2)
        (job.folder / "broken").touch()
        os.kill(job.process.pid, signal.SIGSTOP)  # it learns of both at once
        for pid in members.values():
            os.kill(pid, signal.SIGKILL)
        os.kill(job.process.pid, signal.SIGCONT)
        err = job.finish(code=128 + signal.SIGKILL)
    assert "horovodrun: the job failed: all 2 ranks were each ended by signal 9 (SIGKILL)" in err
    assert "every rank was lost, and with them the state of the training" in err


def test_too_few_ranks_wait_and_then_end(tmp_path):
    with Job(tmp_path, "-np", "2", "--min-np", "2", "--elastic-timeout", "2") as job:
        members = job.members(2)
        (job.folder / "broken").touch()
        os.kill(members[1], signal.SIGKILL)
        assert job.process.wait(timeout=60) == 128 + signal.SIGKILL
        err = job.said()
    assert "1 of at least 2 ranks (--min-np) are ready; slot 1 of localhost: " in err
    assert "too few ranks became ready in time" in err
    assert not is_alive(members[0])


def test_nothing_is_left_after_the_launcher_was_killed(tmp_path):
    with Job(tmp_path, "-np", "2", "--min-np", "1") as job:
        members = job.members(2)
        job.process.kill()
        wait_until(lambda: not any(is_alive(pid) for pid in members.values()))


def test_interrupted_jobs_end(tmp_path):
    with Job(tmp_path, "-np", "2", "--min-np", "1") as job:
        members = job.members(2)
        job.process.send_signal(signal.SIGINT)
        assert job.process.wait(timeout=60) == 128 + signal.SIGINT
        assert not any(is_alive(pid) for pid in members.values())


def test_programs_that_never_train():
    failing = horovodrun("-np", "2", "--min-np", "1", "sh", "-c", "echo wrong >&2; exit 5")
    assert failing.returncode == 5
    assert "no rank reached hvd.init()" in failing.stderr
    assert horovodrun("-np", "2", "--min-np", "1", "true").returncode == 0


def test_results_of_functions(tmp_path):
    def train(folder):
        import os

        import horovod.numpy as hvd
        from horovod.common import elastic

        hvd.init()
        state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, step=0)

        @elastic.run
        def run(state):
            while state.step < 20:
                if state.step == 10 and hvd.rank() == 1 and hvd.size() == 3 and not os.path.exists(folder):
                    open(folder, "w").close()
                    os.kill(os.getpid(), 9)
                state.step += 1
                state.commit()
            return state.step

        return run(state)

    assert horovod.run(train, (str(tmp_path / "killed"),), num_proc=3, min_num_proc=2, reset_limit=3) == [20, 20]


def test_too_few_slots_are_named():
    words = ("-np", "3", "--min-np", "2", "--elastic-timeout", "1", "--host-discovery-script", "echo localhost:1")
    result = horovodrun(*words, sys.executable, "-c", "import horovod.numpy as hvd; hvd.init()")
    assert result.returncode != 0
    assert "0 of at least 2 ranks (--min-np) are ready" in result.stderr
    assert "; the hosts have 1 slot; the job ends in 1 s (--elastic-timeout)" in result.stderr


def test_a_script_that_hangs_is_ended():
    with started("-np", "1", "--host-discovery-script", "sleep 600", "true", stdout=subprocess.DEVNULL) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.startswith("horovodrun: --host-discovery-script sleep 600: it did not end within 10 s")
