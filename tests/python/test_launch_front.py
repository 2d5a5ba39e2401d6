# SPDX-License-Identifier: Apache-2.0
"""What horovodrun says and does beside the job: notes, equal failures, readers that leave, cores, one rank in pdb."""

from __future__ import annotations

import os
import pathlib
import pty
import signal
import subprocess
import sys
import time

import pytest
from launching import HOROVODRUN, clean_environment, horovodrun, report, run, start, started, wait_until


@pytest.mark.parametrize("failure", ["raise ValueError('bad sample 17')", "raise SystemExit(1)"])
def test_a_failure_of_all_ranks_is_one_failure_with_one_traceback(failure):
    result = horovodrun("-np", 3, "--json", sys.executable, "-c", failure)
    said = report(result)
    assert "the job failed: all 3 ranks failed in the same way, with exit code 1" in result.stderr
    assert "collateral" not in result.stderr
    assert (sorted([said["first"]["rank"], *said["alike"]]), said["collateral"]) == ([0, 1, 2], [])
    if "ValueError" in failure:
        assert result.stderr.count("Traceback (most recent call last)") == 1, result.stderr
        assert result.stderr.count("ValueError: bad sample 17 (with the traceback of rank ") == 2
        assert "their error:\n    ValueError: bad sample 17\n" in result.stderr
        assert said["first"]["traceback"].startswith("Traceback")
        hidden = horovodrun("-np", 2, "--only-rank", 1, sys.executable, "-c", failure).stderr
        assert "its stderr:\n    Traceback" in hidden


def test_different_failures_are_not_taken_for_one():
    program = "import os; raise SystemExit('rank ' + os.environ['HOROVOD_RANK'])"
    assert "in the same way" not in horovodrun("-np", 2, sys.executable, "-c", program).stderr


def test_a_rank_that_ends_without_a_word_is_told_as_such():
    result = horovodrun("-np", 1, sys.executable, "-c", "raise SystemExit(3)")
    assert "it printed nothing on stderr" in result.stderr


def test_variables_that_are_misspelt_or_ignored_get_one_note():
    env = {"HOROVOD_FUSION_TRESHOLD": "1", "HOROVOD_CYCLE_TIME": "1", "HOROVOD_OF_MINE": "1", "HOROVOD_HEAP": "system"}
    env["HOROVOD_GPU_OPERATIONS"] = "NCCL"
    words = ["-np", 2, "-x", "HOROVOD_CCL_CACHE=1", "--torus-allreduce", "true"]
    lines = horovodrun(*words, env=env).stderr.splitlines()
    for said in ("HOROVOD_FUSION_TRESHOLD is not known; did you mean HOROVOD_FUSION_THRESHOLD?",
                 "HOROVOD_CYCLE_TIME has no effect: this engine has no cycle to wait for",
                 "HOROVOD_GPU_OPERATIONS has no effect: ",
                 "HOROVOD_CCL_CACHE has no effect: ",
                 "--torus-allreduce has no effect: the engine selects its algorithms itself"):  # fmt: skip
        assert [line for line in lines if line.startswith(f"horovodrun: note: {said}")] != [], (said, lines)
    assert len(lines) == 5, lines


def test_a_value_that_every_rank_would_refuse_is_refused_once():
    result = horovodrun("-np", 2, "true", env={"HOROVOD_FUSION_THRESHOLD": "64MB"})
    expected = "HOROVOD_FUSION_THRESHOLD=64MB is not valid: give a whole number of at least 0, or unset it"
    assert (result.returncode, result.stderr) == (2, f"horovodrun: {expected}\n")


def test_without_horovodrun_rank_0_says_it_once():
    program = "import horovod.numpy as hvd; hvd.init(); hvd.shutdown(); hvd.init()"
    env = clean_environment(HOROVOD_CYCLE_TIME="1", HOROVOD_FUSION_TRESHOLD="1")
    lines = run([sys.executable, "-c", program], env).stderr.splitlines()
    assert len(lines) == 2, lines
    assert "HOROVOD_CYCLE_TIME has no effect: this engine has no cycle to wait for" in lines[0]
    assert "did you mean HOROVOD_FUSION_THRESHOLD?" in lines[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write there")
def test_a_working_folder_that_cannot_be_written_is_called_so(tmp_path):
    tmp_path.chmod(0o755)
    for flag in ("--report-file", "--timeline-filename"):
        command = [HOROVODRUN, "-np", "1", flag, "x", "true"]
        result = subprocess.run(
            command, cwd=tmp_path, user=65534, env=clean_environment(), capture_output=True, text=True, check=False
        )
        assert result.returncode == 2
        assert result.stderr == f"horovodrun: {flag} x: cannot be written (the working folder: Permission denied)\n"


@pytest.mark.parametrize("name", ["missing/t.json", "."])
def test_a_timeline_that_cannot_be_written_is_refused(name, tmp_path):
    result = horovodrun("-np", 1, "--timeline-filename", tmp_path / name, "touch", tmp_path / "started")
    assert result.returncode == 2
    assert f"--timeline-filename {tmp_path / name}: cannot be written" in result.stderr
    assert not (tmp_path / "started").exists()


def test_dropped_lines_have_a_sum_on_stderr_and_a_reader_that_leaves_is_noticed(tmp_path):
    program = "for i in range(1_500_000): print('a line of the rank', i)"
    process = subprocess.Popen(
        [HOROVODRUN, "-np", "1", sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    with process:
        time.sleep(2)  # longer than the rank needs to fill what horovodrun keeps
        shown = process.stdout.read()
        said = process.stderr.read()
    dropped = 1_500_000 - sum("a line of the rank" in line for line in shown.splitlines())
    if dropped:  # not on a machine that is too slow to be too fast
        assert f"horovodrun: {dropped} lines of the ranks' output were dropped in all" in said
    command = f'{HOROVODRUN} -np 1 {sys.executable} -c "{program}" | head -1'
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=clean_environment(), check=True
    )
    assert "nobody reads stdout any more" in result.stderr


CORES = "import os; print(os.environ.get('OMP_NUM_THREADS'), *sorted(os.sched_getaffinity(0)))"


def test_ranks_that_share_a_host_get_their_share_of_threads_and_if_asked_of_cores():
    own = sorted(os.sched_getaffinity(0))
    alone = horovodrun("-np", 1, "--prefix", "", sys.executable, "-c", CORES).stdout.split()
    assert alone == ["None", *map(str, own)]
    shared = horovodrun("-np", 2, "--prefix", "", sys.executable, "-c", CORES).stdout.splitlines()
    assert {line.split()[0] for line in shared} == {str(max(1, len(own) // 2))}
    given = horovodrun("-np", 2, "--prefix", "", sys.executable, "-c", CORES, env={"OMP_NUM_THREADS": "7"}).stdout
    assert {line.split()[0] for line in given.splitlines()} == {"7"}
    bound = horovodrun("-np", 1, "--cores-per-rank", 1, "--prefix", "", sys.executable, "-c", CORES).stdout.split()
    assert bound == ["1", str(own[0])]
    refused = horovodrun("-np", 2, "--cores-per-rank", len(own), "true")
    assert (refused.returncode, f"has {len(own)} cores for 2 ranks" in refused.stderr) == (125, True)


def test_ranks_that_share_a_core_are_told():
    cores = len(os.sched_getaffinity(0))
    said = horovodrun("--verbose", "-np", cores + 1, "true", env={"OMP_NUM_THREADS": "1"}).stderr
    assert f"note: {cores + 1} ranks on {cores} cores: up to 2 ranks share a core" in said
    assert "share a core" not in horovodrun("--verbose", "-np", cores, "true").stderr


DEBUGGED = """
import os, sys
rank = int(os.environ["HOROVOD_RANK"])
if rank == 1: breakpoint()
print("rank", rank, "stdin", repr(sys.stdin.readline()), flush=True)
"""


def test_the_debugged_rank_alone_has_stdin_and_the_terminal(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(DEBUGGED)
    main, other = pty.openpty()
    command = ["setsid", "--ctty", HOROVODRUN, "-np", "2", "--debug-rank", "1", sys.executable, str(script)]
    process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=clean_environment(TERM="dumb"))
    os.close(other)
    text = b""
    for wanted, answer in ((b"(Pdb) ", b"p rank + 41\n"), (b"(Pdb) ", b"c\n"), (b"\n", b"words\n")):
        seen = len(text)
        while wanted not in text[seen:]:
            text += os.read(main, 4096)
        os.write(main, answer)
    while True:
        try:
            text += os.read(main, 4096)
        except OSError:  # nobody has the terminal any more
            break
    assert process.wait() == 0, text
    os.close(main)
    assert b"42" in text
    assert b"rank 1 stdin 'words\\n'" in text
    assert b"rank 0 stdin ''" in text


def test_the_debugged_rank_must_exist_and_be_here():
    assert "the job has the ranks 0 to 1" in horovodrun("-np", 2, "--debug-rank", 2, "true").stderr


FAILING = """
import os, sys
import numpy as np, horovod.numpy as hvd
hvd.init()
hvd.allreduce(np.ones(4), name="loss")
if hvd.rank() == 1 and sys.argv[1] == "fail": os.kill(os.getpid(), 9)
hvd.allreduce(np.ones(4), name="loss")
"""


def test_the_flight_recorder_is_kept_after_a_failure_only(tmp_path):
    env = {"TMPDIR": str(tmp_path)}
    good = horovodrun("-np", 2, sys.executable, "-c", FAILING, "work", env=env)
    assert (good.returncode, list(tmp_path.glob("hvd-flight-*"))) == (0, []), good.stderr
    failed = horovodrun("-np", 2, "--json", sys.executable, "-c", FAILING, "fail", env=env)
    folder = pathlib.Path(report(failed)["flight"])
    assert folder.parent == tmp_path
    assert f"flight:     {folder}" in failed.stderr
    verdict = subprocess.run(
        [sys.executable, "-m", "horovod.flight", folder], capture_output=True, text=True, check=False
    )
    assert "rank 1" in verdict.stdout, verdict
    logged = horovodrun("-np", 2, "--json", "--log-dir", tmp_path / "logs", sys.executable, "-c", FAILING, "fail")
    assert report(logged)["flight"] == str(pathlib.Path(report(logged)["logs"]) / "flight")
    given = {"HOROVOD_FLIGHT_DIR": str(tmp_path / "mine")}
    (tmp_path / "mine").mkdir()
    named = horovodrun("-np", 2, "--json", sys.executable, "-c", FAILING, "fail", env=given)
    assert report(named)["flight"] == str(tmp_path / "mine")


HANGING = """
import numpy as np, horovod.numpy as hvd, time
hvd.init()
if hvd.rank() == 0: hvd.allreduce(np.ones(4), name="loss")
else: time.sleep(600)
"""


def test_the_dumps_of_a_stall_are_kept_if_the_user_ends_the_job(tmp_path):
    env = clean_environment(TMPDIR=str(tmp_path), HOROVOD_STALL_CHECK_TIME_SECONDS="0.3")
    with start([HOROVODRUN, "-np", "2", sys.executable, "-c", HANGING], env) as job:
        wait_until(lambda: len(list(tmp_path.glob("hvd-flight-*/flight.*.json"))) == 2)
        job.send_signal(signal.SIGINT)
        said = job.communicate()[1]
    (folder,) = tmp_path.glob("hvd-flight-*")
    assert f"flight:     {folder}" in said


def test_only_dumps_are_removed(tmp_path):
    mine = tmp_path / "flight" / "mine.csv"
    mine.parent.mkdir()
    for name in ("mine.csv", "flight.0.json"):
        (mine.parent / name).touch()
    assert horovodrun("-np", 1, "--output-filename", tmp_path, "true").returncode == 0
    assert os.listdir(mine.parent) == ["mine.csv"]
    assert horovodrun("-np", 1, "--output-filename", tmp_path / "new", "true").returncode == 0
    assert os.listdir(tmp_path / "new") == ["rank.0"]


LATE = """
import os, pathlib, sys, time
while os.environ["HOROVOD_RANK"] == "1" and not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)
import horovod.numpy as hvd
hvd.init()
"""


def test_a_rank_that_is_late_is_named(tmp_path):
    seen = tmp_path / "seen"
    with started("-np", 2, "--verbose", sys.executable, "-c", LATE, seen) as job:
        for line in job.stderr:
            if "rank 1 has not called hvd.init() yet" in line:
                seen.touch()
            if "all have called hvd.init()" in line:
                break
        assert seen.exists()
        assert job.wait() == 0


def test_a_grace_period_is_mentioned():
    deaf = "import os, signal, sys, time; signal.signal(15, signal.SIG_IGN); "
    deaf += "sys.exit(1) if os.environ['HOROVOD_RANK'] == '0' else time.sleep(100)"
    result = horovodrun("-np", 2, "--grace-period", 2, sys.executable, "-c", deaf)
    assert "waiting up to 2 s for rank 1 to end" in result.stderr


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("OUT_OF_RANGE: Your input ran out of data; Input ran out of data", "Repeat the data set (.repeat())"),
        ("ResourceExhaustedError: OOM when allocating tensor", "Use a smaller batch"),
        ("OSError: [Errno 24] Too many open files", "ulimit -n"),
        ("bdb.BdbQuit", "--debug-rank N"),
        ("_ArrayMemoryError: Unable to allocate 8.00 PiB for an array", "Use a smaller batch"),
        ("Horovod has been shut down: rank 0 did not submit what the others wait for", "same number of steps"),
        ("ImportError: libcudart.so.12: cannot open shared object file", "tensorflow-cpu"),
        ("W dso_loader.cc: Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0", "above"),
        ("ValueError: Mismatched number of classes", "what it printed is above"),
        ("no cache: [Errno 28] No space left on device\nno data", "what it printed is above"),
    ],
)
def test_the_report_explains_known_errors(words, advice):
    result = horovodrun("-np", 1, sys.executable, "-c", f"raise SystemExit({words!r})")
    assert advice in result.stderr.split("suggestion:")[1]


def test_a_script_that_is_not_there_is_told_as_such():
    result = horovodrun("-np", 2, sys.executable, "nosuch.py")
    assert result.returncode == 2
    assert "Python did not find the script; its exit code is 2" in result.stderr.split("suggestion:")[1]


def test_texts_of_this_library_that_are_explained_exist():
    root = pathlib.Path(__file__).resolve().parents[2]
    own = (root / "src/hvd/launch/report/known_errors.txt").read_text().split("\n\nResourceExhaustedError")[0]
    sources = [*(root / "src/hvd").rglob("*.cc"), *(root / "python/horovod").rglob("*.py")]
    everything = "".join(file.read_text() for file in sources if file.name != "blame.cc")
    missing = [block.split("\n")[0] for block in own.split("\n\n") if block.split("\n")[0] not in everything]
    assert missing == []


def test_too_few_descriptors_for_the_launcher_itself():
    said = run(["sh", "-c", 'ulimit -n 20; exec "$0" -np 2 true', HOROVODRUN], clean_environment())
    assert (said.returncode, "raise ulimit -n" in said.stderr) == (125, True), said.stderr


def test_a_command_that_is_written_for_a_shell_gets_a_hint():
    assert "leave out the quotes" in horovodrun("-np", 1, "python train.py").stderr
    assert "leave out the quotes" in horovodrun("-np", 1, "/usr/bin/python3 /tmp/train.py").stderr
    assert "write -x FOO=1" in horovodrun("-np", 1, "FOO=1", "python", "train.py").stderr
    assert "write -x DATA=/data" in horovodrun("-np", 1, "DATA=/data", "python", "train.py").stderr
