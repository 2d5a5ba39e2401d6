# SPDX-License-Identifier: Apache-2.0
"""A process that is killed never hangs the others, and they say which rank it was."""

import os
import pathlib
import sys

import launching
import pytest
import spawn

CODE = """
import os, signal, sys, threading, time
import numpy as np, horovod.numpy as hvd
victim, how = int(sys.argv[1]), sys.argv[2]
hvd.init()
array = hvd.empty(1 << 22, np.float32) if how != "private" else np.empty(1 << 22, np.float32)
hvd.allreduce_(array, name="warm")
if hvd.rank() == victim:
    if how == "exit":
        sys.exit(0)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
try:
    while True:
        hvd.allreduce_(array, name="warm")
except hvd.HorovodInternalError as error:
    print("SEEN", error)
    hvd.shutdown()
"""


def shared_memory_and_files():
    return set(os.listdir("/dev/shm"))


@pytest.mark.parametrize("how", ["arena", "private", "exit"])
@pytest.mark.parametrize("victim", range(3))
def test_the_others_name_the_rank(victim, how):
    before = shared_memory_and_files()
    results = spawn.spawn([sys.executable, "-c", CODE, str(victim), how], 3, timeout=60, preloaded="numpy")
    for result in results:
        if result.rank == victim:
            assert result.returncode == (0 if how == "exit" else -9)
            continue
        assert result.returncode == 0, spawn.describe(result)
        assert "SEEN Horovod has been shut down" in result.output
        assert f"rank {victim}" in result.output
        assert not result.killed
    # Other tests may use some meanwhile; theirs goes, too.
    left = shared_memory_and_files() - before
    launching.wait_until(lambda: not left & shared_memory_and_files())


LOOP = """
import os, signal, sys, threading
import numpy as np, horovod.numpy as hvd
hvd.init(process_sets="dynamic")
array = np.ones(3 << 18, np.float32)
def change_sets():
    hvd.remove_process_set(hvd.add_process_set([0]))
operation = {
    "alltoall": lambda: hvd.alltoall(array, name="x"),
    "reducescatter": lambda: hvd.reducescatter(array, name="x"),
    "adasum": lambda: hvd.allreduce(array, op=hvd.Adasum, name="x"),
    "group": lambda: hvd.grouped_allgather([array, array[:5]], name="x"),
    "join": hvd.join,
    "sets": change_sets,
}[sys.argv[1]]
operation()
if hvd.rank() == 1:
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
try:
    while True:
        operation()
except hvd.HorovodInternalError as error:
    print("SEEN", error)
"""


@pytest.mark.parametrize("operation", ["alltoall", "reducescatter", "adasum", "group", "join", "sets"])
def test_in_every_operation(operation):
    before = shared_memory_and_files()
    results = spawn.spawn([sys.executable, "-c", LOOP, operation], 3, timeout=60, preloaded="numpy")
    assert results[1].returncode == -9
    for result in (results[0], results[2]):
        assert result.returncode == 0, spawn.describe(result)
        assert "SEEN Horovod has been shut down: rank 1" in result.output
    # Other tests may use some meanwhile; theirs goes, too.
    left = shared_memory_and_files() - before
    launching.wait_until(lambda: not left & shared_memory_and_files())


def test_an_absent_rank_is_an_error_with_a_time(tmp_path):
    code = "import horovod.numpy as hvd; hvd.init()"
    env = {"HOROVOD_SIZE": "2", "HOROVOD_RANK": "0", "HOROVOD_START_TIMEOUT": "1"}
    env["HOROVOD_RENDEZVOUS_ADDR"] = f"127.0.0.1:{spawn.free_port()}"
    import subprocess

    result = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ, **env),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 1
    assert "HorovodTimeoutError" in result.stderr
    assert "rank 1" in result.stderr
    assert pathlib.Path(tmp_path).exists()


SILENT = """
import os, pathlib, signal, sys
import numpy as np, horovod.numpy as hvd
rank = int(os.environ["HOROVOD_RANK"])
os.environ["HOROVOD_HOSTNAME"] = "left" if rank < 2 else "right"
if rank == 2:
    pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
hvd.init()
if rank == 2:
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    hvd.allreduce(np.ones(1 << 20), name="after")
except hvd.HorovodInternalError as error:
    print("SEEN", error)
    if rank == 0:
        os.kill(int(pathlib.Path(sys.argv[1]).read_text()), signal.SIGCONT)
"""


def test_one_on_another_host_that_stops_before_anybody_asked_it_anything(tmp_path):
    env = {"HOROVOD_INSECURE": "1", "HOROVOD_HEARTBEAT_TIMEOUT_SECONDS": "1", "HOROVOD_START_TIMEOUT": "5"}
    command = [sys.executable, "-c", SILENT, str(tmp_path / "pid")]
    results = spawn.spawn(command, 3, env=env, timeout=60, preloaded="numpy")
    for result in results:
        assert result.returncode == 0, spawn.describe(result)
        # The one that was stopped hears of it, too.
        assert "SEEN Horovod has been shut down: rank 2" in result.output
        assert "did not respond for 1 s (stopped, or stuck in the kernel" in result.output
        # A rank of its own host sees that the machine is there.
        assert ("or its machine or the network is gone" in result.output) == (result.rank < 2)


HANDED_ON = """
import os, sys
import numpy as np, horovod.numpy as hvd
rank = int(os.environ["HOROVOD_RANK"])
both = hvd.ProcessSet([0, 2])
hvd.init(process_sets=[both])
if rank == 1:
    sys.exit(0)
try:
    if rank == 0:
        hvd.allreduce_async(np.ones(5), name="only here", process_set=both)
        hvd.allreduce(np.ones(5), name="of all")
    else:
        hvd.allreduce(np.ones(5), name="only there", process_set=both)
except hvd.HorovodInternalError as error:
    print("SEEN", error)
    hvd.shutdown()
"""


@pytest.mark.parametrize("no_shm", ["0", "1"])
def test_one_that_shuts_down_because_another_left_hands_the_blame_on(no_shm):
    env = {"HOROVOD_DISABLE_SHM": no_shm}
    results = spawn.spawn([sys.executable, "-c", HANDED_ON], 3, env=env, timeout=60, preloaded="numpy")
    for result in results:
        assert result.returncode == 0, spawn.describe(result)
        assert ("SEEN Horovod has been shut down: rank 1" in result.output) == (result.rank != 1), result.output
