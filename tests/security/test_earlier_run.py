# SPDX-License-Identifier: Apache-2.0
"""Ranks started by hand have no name of their run: one that waits from an earlier run changes no result silently."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

import spawn
from launching import wait_until

RANK = """
import os, sys
import numpy as np, horovod.numpy as hvd
if "HELD" in os.environ:
    sys.stdin.read()
hvd.init()
print("sum", hvd.allreduce(np.full(1, float(os.environ["VALUE"])), op=hvd.Sum, name="sum")[0])
"""


class Rank:
    """A process of this test, as of a user's shell: all of them have the same parent."""

    def __init__(self, port: int, rank: int, value: int, **more: str) -> None:
        env = dict(os.environ, **more, HOROVOD_SIZE="2", HOROVOD_RANK=str(rank), VALUE=str(value))
        env["HOROVOD_RENDEZVOUS_ADDR"] = f"127.0.0.1:{port}"
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        command = [*spawn.DIES_WITH_US, sys.executable, "-c", RANK]
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=self._said, stderr=subprocess.STDOUT
        )
        self.pid = self._process.pid

    def let_go(self) -> None:
        """Let a rank that was held call init."""
        self._process.stdin.close()

    def is_connected(self) -> bool:
        """Return whether one of its Unix sockets is connected."""
        inodes = set()
        for name in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                inodes.add(os.readlink(f"/proc/{self.pid}/fd/{name}").removeprefix("socket:[").removesuffix("]"))
        lines = (line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines())
        return any(fields[5] == "03" and fields[6] in inodes for fields in lines)

    def end(self) -> tuple[int, str]:
        """Wait for the process; return its exit code and all that it wrote."""
        with self._process, self._said:
            code = self._process.wait(timeout=100)
            self._said.seek(0)
            return code, self._said.read()


def _left_over(value: int) -> tuple[int, Rank]:
    """Start a rank 1 that nobody joins, and return its port and it when it has begun to wait."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        old = Rank(port, 1, value)
        listener.accept()[0].close()
    return port, old


def test_a_rank_of_an_earlier_run_changes_no_sum():
    port, old = _left_over(1000)
    ranks = [Rank(port, 0, 1), Rank(port, 1, 1, HELD="1"), old]
    # Otherwise whichever rank 1 is first has the place; this run's own one gives a sum that is right.
    wait_until(old.is_connected)
    ranks[1].let_go()
    ends = [rank.end() for rank in ranks]
    for code, text in ends:
        assert code != 0, ends
        assert "sum" not in text, ends
    told = "\n".join(text for _, text in ends)
    assert re.search(f"rank 1 was given twice: .*pid {old.pid}.* left over from an earlier run", told), ends


def test_a_rank_that_waited_before_rank_0_was_started_is_named():
    port, old = _left_over(2)
    ends = [rank.end() for rank in (Rank(port, 0, 1), old)]
    assert [code for code, _ in ends] == [0, 0], ends
    assert all("sum 3.0" in text for _, text in ends), ends
    assert re.search(rf"rank 1 \(pid {old.pid} .* if it is left over from an earlier run", ends[0][1]), ends


def test_ranks_of_one_run_are_not():
    for output in spawn.run([sys.executable, "-c", RANK], 3, env={"VALUE": "1"}):
        assert "sum 3.0" in output
        assert "earlier run" not in output
