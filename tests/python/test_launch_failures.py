# SPDX-License-Identifier: Apache-2.0
"""One of four ranks fails, in every way there is: the job ends, the report names that rank, and nothing is left."""

import signal
import sys

import launching
import pytest
from launching import horovodrun, report, started

TRAINING = """
import os, signal, sys, time
import numpy as np, horovod.numpy as hvd
how, rank = sys.argv[1], int(os.environ["HOROVOD_RANK"])
open(os.path.join(sys.argv[2], str(rank)), "w").write(f"{os.getpid()}\\n")
if rank == 2 and how == "hangs":
    time.sleep(1000)
if rank == 2 and how == "exits early":
    sys.exit(7)
if rank == 2 and how == "never comes":
    sys.exit(0)
hvd.init()
array = np.ones(1000)
hvd.allreduce(array, name="a")
if rank == 2:
    if how == "raises": raise ValueError("no luck")
    if how == "exits": sys.exit(3)
    if how.startswith("is killed"): os.kill(os.getpid(), signal.SIGKILL)
    if how == "crashes": os.kill(os.getpid(), signal.SIGSEGV)
    if how == "is stopped": os.kill(os.getpid(), signal.SIGSTOP)
    if how == "leaves": sys.exit(0)
try:
    while True:
        hvd.allreduce(array, name="a")
except hvd.HorovodInternalError:
    if how == "is killed and nobody says so": os._exit(1)
    raise
"""


@pytest.mark.parametrize(
    ("how", "code", "end"),
    [
        ("raises", 1, {"exit_code": 1}),
        ("exits", 3, {"exit_code": 3}),
        ("exits early", 7, {"exit_code": 7}),
        ("never comes", 1, {"exit_code": 0, "silent": False}),
        ("is killed", 137, {"signal_name": "SIGKILL"}),
        ("is killed and nobody says so", 137, {"signal_name": "SIGKILL"}),
        ("crashes", 139, {"signal_name": "SIGSEGV"}),
        ("leaves", 1, {"exit_code": 0}),
        ("is stopped", 1, {"silent": True}),
        ("hangs", 1, {"silent": True}),
    ],
)
def test_the_report_names_the_rank(how, code, end, tmp_path):
    env = {"HOROVOD_HEARTBEAT_TIMEOUT_SECONDS": "2"}
    # Ranks that hang are given time to come, which on a busy machine must be enough for the others to come.
    flags = ["--json", "--grace-period", "2", "--start-timeout", "15" if how == "hangs" else "300"]
    result = horovodrun("-np", "4", *flags, sys.executable, "-c", TRAINING, how, tmp_path, env=env)
    said = report(result)
    assert result.returncode == code, result.stderr
    assert (said["status"], said["exit_code"], said["first"]["rank"]) == ("failed", code, 2), result.stderr
    assert said["first"] == {**said["first"], **end}, result.stderr
    assert 2 not in [rank["rank"] for rank in said["collateral"]]
    assert said["first"]["pid"] == int((tmp_path / "2").read_text())
    assert "  first:      rank 2 on host localhost" in result.stderr
    assert not any(launching.is_alive(int(file.read_text())) for file in tmp_path.iterdir())
    if how == "never comes":
        # Long before the start time-out: the launcher saw it end, and told the others.
        assert "the job failed: rank 2 ended with exit code 0 before hvd.init()" in result.stderr
    if how == "raises":
        assert said["first"]["traceback"].endswith("ValueError: no luck\n")
        assert "    ValueError: no luck\n" in result.stderr.split("horovodrun: the job failed")[1]


# Without the launcher the others would wait for it until the start time-out.
BEFORE_INIT = """
import os, signal, sys
import horovod.numpy as hvd
if os.environ["HOROVOD_RANK"] == "0":
    if sys.argv[1] == "is killed": os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "has no token": os.environ["HOROVOD_TOKEN_FILE"] = "/nowhere"
    if sys.argv[1] == "has no log": os.environ.update(HOROVOD_AUTOTUNE="1", HOROVOD_AUTOTUNE_LOG="/nowhere/log")
hvd.init()
"""


@pytest.mark.parametrize(
    ("how", "code", "reason"),
    [
        ("is killed", 137, "SIGKILL"),
        ("has no token", 1, "token file /nowhere cannot be opened"),
        ("has no log", 1, "HOROVOD_AUTOTUNE_LOG=/nowhere/log cannot be written"),
    ],
)
def test_a_rank_0_that_fails_before_the_ranks_have_met_ends_the_job(how, code, reason):
    flags = ["--json", "--start-timeout", "3600"]
    result = horovodrun("-np", "3", *flags, sys.executable, "-c", BEFORE_INIT, how)
    said = report(result)
    assert (result.returncode, said["first"]["rank"]) == (code, 0), result.stderr
    assert reason in result.stderr.split("horovodrun: the job failed")[1]


# A child that leaves the rank's process group and session, and ignores requests to end.
STUBBORN = "import os, signal, sys, time\n" + (
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "    signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    "    open(f'{sys.argv[1]}/child.{os.getppid()}', 'w').write(f'{os.getpid()}\\n')\n"
    "    time.sleep(1000)\n"
    "open(f'{sys.argv[1]}/rank.{os.getpid()}', 'w').write(f'{os.getpid()}\\n')\n"
)


def nobody_left(pids):
    launching.wait_until(lambda: not any(launching.is_alive(pid) for pid in pids), timeout=60)


def test_a_killed_launcher_takes_everything_along(tmp_path):
    with started("-np", "2", sys.executable, "-c", STUBBORN + "time.sleep(1000)", tmp_path) as process:
        pids = launching.pids_in(tmp_path, 4)
        process.kill()
        process.wait()
        nobody_left(pids)


def test_children_of_ranks_go_with_the_job(tmp_path):
    wait = "while len(os.listdir(sys.argv[1])) < 4: time.sleep(0.01)\n"
    flags = ["-np", "2", "--grace-period", "0.2"]
    result = horovodrun(*flags, sys.executable, "-c", STUBBORN + wait, tmp_path)
    assert result.returncode == 0, result.stderr
    assert not any(launching.is_alive(pid) for pid in launching.pids_in(tmp_path, 4))
    for file in tmp_path.iterdir():
        file.unlink()
    result = horovodrun(
        *flags, sys.executable, "-c", STUBBORN + wait + "sys.exit(os.environ['HOROVOD_RANK'] == '1')", tmp_path
    )
    assert result.returncode == 1
    assert not any(launching.is_alive(pid) for pid in launching.pids_in(tmp_path, 4))


def test_a_job_inside_a_job_goes_with_it(tmp_path):
    inner = [launching.HOROVODRUN, "-np", "2", "sh", "-c", f"echo $$ > {tmp_path}/$$; exec sleep 1000"]
    with started("-np", "1", *inner) as process:
        pids = launching.pids_in(tmp_path, 2)
        process.kill()
        process.wait()
        nobody_left(pids)


def test_a_program_that_the_kernel_refuses(tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    result = horovodrun("-np", "2", "--json", program)
    assert result.returncode == 127
    assert "could not be executed: No such file or directory" in result.stderr
    assert "exec_error" in report(result)["first"]
    program.write_bytes(b"\0no program\0")
    assert horovodrun("-np", "1", program).returncode == 126, "exec format error"


def test_a_stopped_rank_does_not_cost_the_grace_period(tmp_path):
    script = f"echo $$ > {tmp_path}/$$; [ $HOROVOD_RANK = 0 ] && kill -STOP $$; sleep 0.3; exit 5"
    result = horovodrun("-np", "2", "--grace-period", "3600", "sh", "-c", script)
    assert result.returncode == 5
    assert not any(launching.is_alive(pid) for pid in launching.pids_in(tmp_path, 2))


def test_a_rank_that_others_found_silent_is_explained_by_their_words():
    words = "Horovod has been shut down: rank 0 (host a, pid 1) did not respond for 5 s (stopped)"
    script = f"[ $HOROVOD_RANK = 0 ] && kill -STOP $$; echo '{words}' >&2; exit 1"
    result = horovodrun("-np", "2", "--grace-period", "3600", "sh", "-c", script)
    assert "See whether SIGSTOP or a debugger stopped it" in result.stderr.split("suggestion:")[1]


def test_the_first_of_many_equal_failures_is_named():
    result = horovodrun("-np", "3", "--json", "sh", "-c", "sleep 0.$HOROVOD_RANK; exit 1")
    assert result.returncode == 1
    assert report(result)["first"]["rank"] == 0


def test_signals_have_names():
    result = horovodrun("-np", "1", "sh", "-c", "kill -ABRT $$")
    assert result.returncode == 128 + signal.SIGABRT
    assert "rank 0 was ended by signal 6 (SIGABRT)" in result.stderr
