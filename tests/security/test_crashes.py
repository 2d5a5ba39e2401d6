# SPDX-License-Identifier: Apache-2.0
"""A rank crashes while the folder of its flight recorder does not answer: peers hear of it first, and it still ends."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys

import pytest
import spawn

FAN_CLASS_CONTENT, FAN_MARK_ADD, FAN_OPEN_PERM, FAN_EVENT_ON_CHILD, AT_FDCWD = 0x4, 0x1, 0x10000, 0x08000000, -100

CODE = """
import os, signal, sys
rank = int(os.environ["HOROVOD_RANK"])
if rank == 1:
    os.environ["HOROVOD_FLIGHT_DIR"] = sys.argv[1]
import numpy as np, horovod.numpy as hvd

def state(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"

hvd.init()
pids = hvd.allgather(np.array([os.getpid()]), name="pids")
if rank == 1:
    if sys.argv[2] == "dump":
        os.kill(os.getpid(), signal.SIGUSR2)
        hvd.allreduce(np.ones(2), name="goes on")
        hvd.shutdown()
        sys.exit()
    os.kill(os.getpid(), signal.SIGSEGV)
try:
    hvd.allreduce(np.ones(2), name="goes on")
except hvd.HorovodInternalError as error:
    print("PEER", state(int(pids[1])), error)
"""


@pytest.fixture
def silent(tmp_path):
    """A folder in which no file is opened until the test is over."""
    libc = ctypes.CDLL(None, use_errno=True)
    events = libc.fanotify_init(FAN_CLASS_CONTENT, os.O_RDONLY)
    if events < 0:
        pytest.skip(f"files cannot be held up: {os.strerror(ctypes.get_errno())}")
    mask = ctypes.c_uint64(FAN_OPEN_PERM | FAN_EVENT_ON_CHILD)
    assert libc.fanotify_mark(events, FAN_MARK_ADD, mask, AT_FDCWD, os.fsencode(tmp_path)) == 0
    yield tmp_path
    os.close(events)


@pytest.mark.parametrize("with_faulthandler", ["0", "1"])
def test_peers_hear_of_a_crash_before_its_file_is_written(silent, with_faulthandler):
    # Any text but an empty one enables it.
    env = {"PYTHONFAULTHANDLER": "1"} if with_faulthandler == "1" else {}
    results = spawn.spawn([sys.executable, "-c", CODE, str(silent), "crash"], 2, env=env)
    assert results[1].returncode == -signal.SIGSEGV, results[1].output
    assert ("Segmentation fault" in results[1].output) == (with_faulthandler == "1")
    peer = results[0].output.split("PEER", 1)[1].split(maxsplit=1)
    assert peer[0] in "RSD", "the rank that crashed waits for its file, and its peer knows already"
    assert re.search("rank 1.* was ended by signal 11", peer[1])


def test_a_dump_on_request_holds_nobody_up(silent):
    results = spawn.spawn([sys.executable, "-c", CODE, str(silent), "dump"], 2)
    assert [result.returncode for result in results] == [0, 0], "\n".join(map(spawn.describe, results))


def test_planted_pipes_hold_no_crash_up(tmp_path):
    for name in ("flight.1.json", "flight.1.json.part"):
        os.mkfifo(tmp_path / name)
    results = spawn.spawn([sys.executable, "-c", CODE, str(tmp_path), "crash"], 2)
    assert results[1].returncode == -signal.SIGSEGV
    assert "crash: SIGSEGV" in (tmp_path / "flight.1.json").read_text()
