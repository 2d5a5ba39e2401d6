# SPDX-License-Identifier: Apache-2.0
"""The tests' own way to start ranks leaves none behind, whoever is killed."""

import os
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def test_ranks_die_with_the_one_that_started_them(tmp_path):
    rank = f"import os, time; open('{tmp_path}/%d' % os.getpid(), 'w'); time.sleep(1000)"
    code = (
        f"import sys; sys.path.insert(0, {str(HERE)!r}); import spawn; spawn.spawn([sys.executable, '-c', {rank!r}], 2)"
    )
    starter = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while len(os.listdir(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    pids = [int(name) for name in os.listdir(tmp_path)]
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    while (left := [pid for pid in pids if runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(pids) == 2
    assert left == []


def runs(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
