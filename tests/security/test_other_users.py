# SPDX-License-Identifier: Apache-2.0
"""Another user of the machine: takes the names of a job's sockets, floods them, and looks into its processes."""

import contextlib
import os
import pathlib
import re
import select
import socket
import subprocess
import sys
import time

import launching
import pytest
import spawn
from horovod.chaos import system

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="to become another user needs root")

NOBODY = 65534

WORK = """
import os, sys, numpy as np, horovod.numpy as hvd
hvd.init()
open(f"{sys.argv[1]}/{hvd.rank()}", "w").write(f"{os.getpid()}\\n")
step, right, last = 0, True, False
while not last:
    step += 1
    found = hvd.allreduce(np.full(20000, float(hvd.rank() + step)), op=hvd.Sum, name="sum")
    right &= bool((found == 3 + 3 * step).all())
    last = hvd.broadcast_object(step >= 20 and os.path.exists(f"{sys.argv[1]}/../go"), name="last")
print("RIGHT" if right else "WRONG")
"""


@contextlib.contextmanager
def another_user(main):
    """Run a function of a descriptor, as another user, during the block; give the other end, from which to read."""
    read, write = os.pipe()

    def as_nobody():
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        main(write)

    pid = system.fork(as_nobody, (write,))
    os.close(write)
    with open(read) as said:
        try:
            yield said
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)


def test_who_has_taken_the_name_of_the_store_learns_nothing():
    port = spawn.free_port()

    def squat(tell):
        with socket.socket(socket.AF_UNIX) as taken:
            taken.bind(f"\0hvd-store-0-{port}")
            taken.listen()
            os.write(tell, b"taken\n")
            while True:
                guest, _ = taken.accept()
                guest.settimeout(5)
                os.write(tell, guest.recv(4096).hex().encode() + b"\n")

    env = {"HOROVOD_SIZE": "2", "HOROVOD_RENDEZVOUS_ADDR": f"127.0.0.1:{port}", "HOROVOD_START_TIMEOUT": "2"}
    with another_user(squat) as said:
        assert said.readline() == "taken\n"
        words = [sys.executable, "-c", "import horovod.numpy as hvd; hvd.init()"]
        ranks = [
            subprocess.Popen(
                [*spawn.DIES_WITH_US, *words],
                env=launching.clean_environment(**env, HOROVOD_RANK=str(rank)),
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        texts = [rank.communicate(timeout=60)[1] for rank in ranks]
        assert all(rank.returncode == 1 for rank in ranks)
        assert any("user" in text for text in texts), texts
        while select.select([said], [], [], 0)[0]:
            assert said.readline() in ("\n", ""), "a rank has said something to another user"


def names():
    """Return the abstract names of sockets of jobs."""
    return set(re.findall(r"@(hvd-\S+)", pathlib.Path("/proc/net/unix").read_text()))


def test_who_floods_all_names_and_looks_into_all_processes(tmp_path):
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    before = names()

    def flood(tell):
        tried = 0
        while True:
            for name in names() - before:
                for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
                    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as one:
                        one.setblocking(False)
                        one.connect("\0" + name)
                        one.send(os.urandom(200))
                        tried += 1
                        if tried == 50:
                            os.write(tell, b"many\n")
            time.sleep(0.001)

    def look(tell):
        for pid in pids:
            for what in ("fd", "environ", "maps", "mem", "map_files"):
                with contextlib.suppress(OSError):
                    place = f"/proc/{pid}/{what}"
                    found = os.listdir(place) if what in ("fd", "map_files") else pathlib.Path(place).read_bytes()
                    os.write(tell, f"{what} of {pid}: {len(found)}\n".encode())
        os.write(tell, b"looked\n")
        time.sleep(60)

    # Rank 2 comes late, so that names are there for a while.
    code = "import os, time\nif os.environ['HOROVOD_RANK'] == '2': time.sleep(1)\n" + WORK
    words = ("-np", "3", "--start-timeout", "60", sys.executable, "-c", code, ranks)
    with another_user(flood) as flooded, launching.started(*words) as process:
        assert flooded.readline() == "many\n"
        pids = launching.pids_in(ranks, 3)
        with another_user(look) as seen:
            assert seen.readline() == "looked\n"
        (tmp_path / "go").touch()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.count("RIGHT") == 3
    assert err.count("was refused") <= 3, "a stranger must not fill the log"
