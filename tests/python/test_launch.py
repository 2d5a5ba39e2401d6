# SPDX-License-Identifier: Apache-2.0
"""horovodrun: what it starts, what it refuses, what it prints."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import horovod
import launching
import pytest
from launching import HOROVODRUN, horovodrun, started

NUMPY = """
import os, numpy as np, horovod.numpy as hvd
hvd.init()
print(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.cross_size(), hvd.allreduce(np.ones(2), op=hvd.Sum, name="a"))
"""


def test_ranks_meet_and_their_lines_are_labelled():
    result = horovodrun("-np", "2", sys.executable, "-c", NUMPY)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["[0]<stdout>:0 2 0 1 [2. 2.]", "[1]<stdout>:1 2 1 1 [2. 2.]"]
    assert result.stderr == ""


def test_a_script_needs_no_python_in_front(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import sys; print(sys.executable, sys.argv[1:])")
    result = horovodrun("-np", "1", "--prefix", "", script, "--epochs", "3")
    assert result.stdout == f"{pathlib.Path(HOROVODRUN).parent}/python ['--epochs', '3']\n"


def test_mpi_operations_need_mpi_to_start_the_ranks():
    result = horovodrun("-np", "1", "true", env={"HOROVOD_CPU_OPERATIONS": "MPI"})
    assert result.returncode == 0
    assert "HOROVOD_CPU_OPERATIONS=mpi has no effect without --mpi" in result.stderr


def test_algorithms_are_shown_and_nothing_is_started():
    result = horovodrun("--algorithms")
    assert result.returncode == 0, result.stderr
    assert "hierarchical_reduce" in result.stdout
    assert "HOROVOD_ALGORITHMS" in result.stdout
    changed = {"HOROVOD_ALGORITHMS": "allreduce:mixed:one_step=..96K"}
    result = horovodrun("-np", "3", "-H", "localhost:2,other.invalid:1", "--algorithms", env=changed)
    assert result.returncode == 0, result.stderr
    assert re.search(r"allreduce +\.\.48K +one_step", result.stdout)
    result = horovodrun("--algorithms", "-x", "HOROVOD_ALGORITHMS=allreduce:shm:two_step=..1K")
    assert result.returncode == 2
    assert 'no algorithm is called "two_step"; known: tiny' in result.stderr


def test_only_as_many_as_asked_for():
    result = horovodrun("-np", "2", "-H", "localhost:4", "--prefix", "", "sh", "-c", "echo $HOROVOD_SIZE")
    assert result.stdout == "2\n2\n"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["-np", "x", "true"], 2, "-np x: expected a whole number"),
        (["--hots", "a", "true"], 2, "unknown flag --hots; did you mean --hosts?"),
        (["-np", "3", "-H", "localhost:2", "true"], 2, "-np 3: the hosts have 2 slots (localhost:2)"),
        (["-np", "1", "--jsrun", "true"], 2, "--jsrun: "),
        (["-np", "1", "-H", "other.invalid", "--network-interfaces", "nic9", "true"], 2, "--network-interfaces nic9: "),
        (["-np", "1", "-H", "other.invalid", "--driver-address", "x.invalid", "true"], 2, "--driver-address: host 'x."),
        (["-np", "1", "-H", "other.invalid", "--token-file", "/no/file", "true"], 2, "token file /no/file cannot be"),
        (["-np", "1", "-i", "/no/key", "true"], 2, "-i /no/key: No such file or directory; expected a file"),
        (["-np", "1", "--network-interfaces", "nic9,lo", "true"], 2, "--network-interfaces nic9: there is no such"),
        (["-np", "1", "--driver-address", "x.invalid", "true"], 2, "--driver-address: host 'x.invalid'"),
        (["-np", "1", "--driver-address", "192.0.2.7", "true"], 2, "--driver-address 192.0.2.7: this machine does not"),
        (["-np", "1", "--report-file", "/no/folder/x", "true"], 2, "--report-file /no/folder/x: cannot be written"),
        (["-np", "1", "--output-filename", "", "true"], 2, "--output-filename '': expected DIR"),
        (["-np", "1", "-x", "HOROVOD_RANK=7", "true"], 2, "-x HOROVOD_RANK: HOROVOD_RANK is for horovodrun to set"),
        (["agent", "--driver", "a:1"], 2, "agent: --token-file is missing"),
        (["agent", "--driver", "foo"], 2, "agent: --driver foo: expected HOST:PORT"),
        (["-np", "1", "--min-np", "2", "true"], 2, "--min-np 2: is more than -np 1"),
        (["-np", "3", "--min-np", "2", "-H", "localhost:1", "true"], 2, "-np 3: the hosts have 1 slot"),
        (["-np", "1", "--min-np", "1", "-H", "other.invalid:2", "true"], 2, "-H: host other.invalid is not this mach"),
        (["-np", "1", "--host-discovery-script", "/no/script", "true"], 2, "--host-discovery-script /no/script: it f"),
        (["-np", "1", "--host-discovery-script", "echo a,b", "true"], 2, "--host-discovery-script echo a,b: 'a,b': ex"),
        (["-np", "1", "--host-discovery-script", "echo a", "true"], 2, "--host-discovery-script echo a: 'a' has no nu"),
        (["-np", "1", "--output-filename", "/dev/null/x", "true"], 2, "/dev/null/x/rank.0: cannot make this folder"),
        (["-np", "1", "no-such-program"], 127, "no-such-program: there is no such program in PATH"),
        (["-np", "1", "/etc/passwd"], 126, "/etc/passwd: it may not be executed"),
        (["-np", "1", "/etc"], 126, "/etc: this is a folder, not a program"),
    ],
)
def test_wrong_input_is_one_line_and_starts_nothing(words, code, text):
    result = horovodrun(*words)
    assert result.returncode == code
    assert result.stdout == ""
    assert result.stderr.startswith(f"horovodrun: {text}")
    assert result.stderr.count("\n") == 1


def test_what_was_not_started_is_told_in_json_too():
    result = horovodrun("-np", "1", "--json", "no-such-program")
    assert result.returncode == 127
    said = launching.report(result)
    assert (said["status"], said["exit_code"]) == ("failed", 127)
    assert said["error"] == "no-such-program: there is no such program in PATH"


def test_output_that_cannot_be_written_is_noticed():
    for words in (["-np", "1", "echo", "x"], ["--help"]):
        with open("/dev/full", "w") as full:
            result = subprocess.run(
                [HOROVODRUN, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
            )
        assert result.returncode == 125
        assert result.stderr.startswith("horovodrun: stdout: No space left on device")
        assert result.stderr.count("\n") == 1


def test_questions():
    assert horovodrun("--version").stdout == horovod.__version__ + "\n"
    assert "usage: horovodrun" in horovodrun("--help").stdout
    build = horovodrun("--check-build").stdout
    assert "Available Frameworks:\n" in build
    assert "    [X] NumPy\n" in build
    assert "    [X] Gloo (hvd's own engine takes its place; hvd.gloo_built() is False)\n" in build
    assert json.loads(horovodrun("--check-build", "--json").stdout)["Available Frameworks"]["NumPy"] is None
    plan = json.loads(horovodrun("-np", "2", "--dry-run", "--json", "sh", "-c", "exit 1").stdout)
    assert plan["argv"] == ["sh", "-c", "exit 1"]
    assert [rank["local_rank"] for rank in plan["ranks"]] == [0, 1]


PORTS = """
import os, pathlib
mine = {os.readlink(link) for link in pathlib.Path(f"/proc/{os.getppid()}/fd").iterdir()}
rows = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").readlines()[1:]]
print([row[1] for row in rows if f"socket:[{row[9]}]" in mine])
print([name for name in os.environ if "TOKEN" in name or "SECRET" in name or "KEY" in name])
"""


def test_a_job_of_one_machine_has_no_port_and_no_secret():
    env = {"HOROVOD_TOKEN_FILE": "/of/an/outer/job"}
    result = horovodrun("-np", "1", "--prefix", "", "-x", "KEY=1", sys.executable, "-c", PORTS, env=env)
    assert result.stdout == "[]\n['KEY']\n", result.stderr


def test_files_and_console(tmp_path):
    out = tmp_path / "out"
    script = "printf 'a\\nb'; echo e$HOROVOD_RANK >&2"
    result = horovodrun("-np", "11", "--only-rank", "10", "--output-filename", out, "sh", "-c", script)
    assert result.stdout == "[10]<stdout>:a\n[10]<stdout>:b\n"
    assert result.stderr == "[10]<stderr>:e10\n"
    assert (out / "rank.03" / "stdout").read_text() == "a\nb"
    assert (out / "rank.10" / "stderr").read_text() == "e10\n"


def test_log_dir_keeps_every_job_and_points_to_the_latest(tmp_path):
    for word in ("one", "two"):
        assert horovodrun("-np", "1", "--log-dir", tmp_path, "echo", word).returncode == 0
    assert (tmp_path / "latest" / "rank.0" / "stdout").read_text() == "two\n"
    assert len(list(tmp_path.iterdir())) == 3
    failed = horovodrun("-np", "1", "--log-dir", tmp_path, "sh", "-c", "exit 4")
    assert json.loads((tmp_path / "latest" / "failure.json").read_text())["exit_code"] == 4
    assert f"logs:       {tmp_path}" in failed.stderr


def test_a_full_disk_ends_a_file_and_not_the_job(tmp_path):
    (tmp_path / "rank.0").mkdir()
    (tmp_path / "rank.0" / "stdout").symlink_to("/dev/full")
    result = horovodrun("-np", "1", "--output-filename", tmp_path, "sh", "-c", "echo one; echo two")
    assert result.returncode == 0
    assert result.stdout == "[0]<stdout>:one\n[0]<stdout>:two\n"
    assert f"{tmp_path}/rank.0/stdout: No space left on device; the rest of it is not kept" in result.stderr


def test_closed_streams_do_not_mix_things_up():
    closed = subprocess.run(
        ["sh", "-c", f"exec {HOROVODRUN} -np 2 sh -c 'read x; echo $? >&2' <&- >&-"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert sorted(closed.stderr.splitlines()) == ["[0]<stderr>:1", "[1]<stderr>:1"]
    assert closed.returncode == 0


def test_it_says_what_it_does_when_asked():
    result = horovodrun("-np", "2", "--verbose", "true")
    note, first, second = result.stderr.splitlines()
    assert re.fullmatch(r"horovodrun: note: OMP_NUM_THREADS=\d+ is set for each rank, because 2 ranks .*", note)
    assert re.fullmatch(r"horovodrun: [0-9.]+ s: 2 ranks started: \S+", first)
    assert second.startswith("horovodrun: all ranks ended")


def test_two_names_of_this_machine_are_one_host_of_the_job():
    hosts = f"localhost:1,{socket.gethostname()}:1"
    result = horovodrun("-np", "2", "-H", hosts, "--verbose", sys.executable, "-c", NUMPY)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["[0]<stdout>:0 2 0 1 [2. 2.]", "[1]<stdout>:1 2 1 1 [2. 2.]"]
    assert f"localhost and {socket.gethostname()} are this machine: its ranks are those of one host" in result.stderr
    assert re.search(r"horovodrun: [0-9.]+ s: ranks up: all have called hvd.init\(\)\n", result.stderr)


def test_colors_and_prefixes():
    result = horovodrun("-np", "1", "--color", "always", "--prefix", "{host}:{rank}", "echo", "x")
    assert result.stdout == "\033[36mlocalhost:0 | \033[0mx\n"
    assert horovodrun("-np", "1", "echo", "x").stdout == "[0]<stdout>:x\n"
    assert horovodrun("-np", "1", "-prefix-timestamp", "echo", "x").stdout.endswith("[0]<stdout>:x\n")


def test_progress_bars_collapse_and_bytes_stay_as_they_are():
    script = "printf '1%%\\r2%%\\r100%%\\n\\303'; sleep 0.1; printf '\\266 \\377\\n'"
    result = subprocess.run(
        [HOROVODRUN, "-np", "1", "sh", "-c", script], capture_output=True, timeout=60, check=True
    ).stdout
    assert result == b"[0]<stdout>:100%\n[0]<stdout>:\xc3\xb6 \xff\n"


def test_a_reader_that_does_not_read_stops_nobody(tmp_path):
    # Far more than pipes hold. The rank gets through although nobody reads what the launcher prints.
    script = f"head -c 50000000 /dev/zero | tr '\\0' 'x' | fold -w 1000; touch {tmp_path}/done"
    with started("-np", "1", "sh", "-c", script) as process:
        launching.wait_until((tmp_path / "done").exists)
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0])
        assert peak < 200_000, "kilobytes; what nobody reads is dropped"
        shown = process.stdout.read()
        assert process.wait(timeout=60) == 0
        assert "lines were dropped here" in shown


def test_as_pid_1_it_reaps_what_ranks_leave_behind():
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no pid namespaces here")
    # An orphan that the rank leaves behind is reaped, not kept as a zombie.
    script = "(true &); sleep 0.2; grep -l ') Z' /proc/[0-9]*/stat | wc -l"
    result = subprocess.run(
        [*unshare, HOROVODRUN, "-np", "1", "--prefix", "", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "0\n"), result.stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_signals_reach_the_ranks_and_end_the_job(name, tmp_path):
    number = getattr(signal, name)
    # Each says which signal it got.
    script = f"trap 'echo got; exit 0' {name[3:]}; echo $$ > {tmp_path}/$$; while :; do sleep 0.05; done"
    with started("-np", "2", "sh", "-c", script) as process:
        launching.pids_in(tmp_path, 2)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert sorted(out.splitlines()) == ["[0]<stdout>:got", "[1]<stdout>:got"]
    assert process.returncode == 0, err  # they all ended well


def test_a_job_of_the_background_ends_by_an_interrupt_and_outlives_its_terminal(tmp_path):
    rank = f"import os, time; open(f'{tmp_path}/{{os.getpid()}}', 'w').write(f'{{os.getpid()}}\\n'); time.sleep(1000)"
    # As a script starts a job with `nohup ... &`.
    script = f'trap "" INT QUIT HUP; exec {HOROVODRUN} -np 2 --grace-period 3600 {sys.executable} -c "$1"'
    with launching.start(["sh", "-c", script, "sh", rank], launching.clean_environment()) as process:
        pids = launching.pids_in(tmp_path, 2)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.count("KeyboardInterrupt")) == (130, 2), err
    assert not any(launching.is_alive(pid) for pid in pids)


def test_user_signals_are_passed_on_and_end_nothing(tmp_path):
    script = f"trap 'echo usr; exit 0' USR1; echo $$ > {tmp_path}/$$; while :; do sleep 0.05; done"
    with started("-np", "2", "sh", "-c", script) as process:
        launching.pids_in(tmp_path, 2)
        process.send_signal(signal.SIGUSR1)
        out, _ = process.communicate(timeout=60)
    assert out.count("usr") == 2
    assert process.returncode == 0


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2"])
def test_user_signals_do_not_end_ranks_that_have_no_handler(name, tmp_path):
    script = f"echo $$ > {tmp_path}/$$; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo well"
    with started("-np", "3", "sh", "-c", script) as process:
        launching.pids_in(tmp_path, 3)
        process.send_signal(getattr(signal, name))
        said = process.stderr.readline()
        (tmp_path / "go").touch()
        out, _ = process.communicate(timeout=60)
    assert f"{name} was not passed on to ranks 0, 1, 2" in said
    assert (out.count("well"), process.returncode) == (3, 0)


def test_ranks_that_ignore_the_end_are_killed_and_a_second_interrupt_does_not_wait(tmp_path):
    script = f"trap '' INT TERM; echo $$ > {tmp_path}/$$; while :; do sleep 0.05; done"
    with started("-np", "2", "--grace-period", "3600", "sh", "-c", script) as process:
        pids = launching.pids_in(tmp_path, 2)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)  # another one: two equal signals may be seen as one
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT or process.returncode == 128 + signal.SIGTERM
    assert not any(launching.is_alive(pid) for pid in pids)


def test_the_job_marks_its_processes():
    result = horovodrun("-np", "1", "--prefix", "", "sh", "-c", "echo $HOROVOD_JOB_ID", env={"HOROVOD_JOB_ID": "outer"})
    assert result.stdout.startswith("outer/")


def test_it_is_small_enough_to_start_often():
    assert os.path.getsize(HOROVODRUN) < 20 << 20
