# SPDX-License-Identifier: Apache-2.0
"""A process group gets the number that a rank's had. Nobody kills it when the launcher is killed."""

import subprocess
import sys

import pytest
import spawn
from launching import HOROVODRUN, clean_environment

# Runs in a pid namespace of its own, where nobody else takes numbers.
CODE = """
import os, pathlib, signal, subprocess, sys, time

def wait_until(condition):
    while not condition():
        time.sleep(0.01)

def read(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""

def state(pid):
    return (read(f"/proc/{pid}/stat").rpartition(")")[2].split() or ["gone"])[0]

def alive(name):
    pids = [path.name for path in pathlib.Path("/proc").glob("[0-9]*")]
    return any(name in read(f"/proc/{pid}/comm") and state(pid) not in ("Z", "gone") for pid in pids)

folder = pathlib.Path(sys.argv[2])
rank = (
    "import os, pathlib, signal, sys; n = os.environ['HOROVOD_RANK'];"
    "path = pathlib.Path(sys.argv[1]) / n; path.with_suffix('.new').write_text(str(os.getpid()));"
    "path.with_suffix('.new').rename(path); n == '1' or signal.pause()"
)
launcher = subprocess.Popen([sys.argv[1], "-np", "2", sys.executable, "-c", rank, str(folder)])
wait_until(lambda: (folder / "0").exists() and (folder / "1").exists())
stays, ends = (int((folder / name).read_text()) for name in "01")
wait_until(lambda: state(ends) == "gone")
# It is through with that end when it waits for the next event.
wait_until(lambda: state(launcher.pid) == "S")
pathlib.Path("/proc/sys/kernel/ns_last_pid").write_text(str(ends - 1))
ready, tell = os.pipe()
victim = os.fork()
if victim == 0:
    os.setsid()
    os.write(tell, b"x")
    signal.pause()
if victim != ends:
    print("NUMBER TAKEN")
    os._exit(0)
os.read(ready, 1)
launcher.kill()
launcher.wait()
wait_until(lambda: state(stays) in ("Z", "gone"))
# The last one to go is what kills for the launcher.
wait_until(lambda: not alive("horovodrun"))
print("KILLED" if os.waitpid(victim, os.WNOHANG)[0] else "LIVES")
"""


def test_a_group_that_ended_is_not_killed(tmp_path):
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", CODE, HOROVODRUN]
    result = subprocess.run(
        [*spawn.DIES_WITH_US, *command, str(tmp_path)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "Operation not permitted" in result.stderr or "NUMBER TAKEN" in result.stdout:
        pytest.skip("numbers of processes cannot be chosen here")
    assert "LIVES" in result.stdout, result.stdout + result.stderr
