# SPDX-License-Identifier: Apache-2.0
"""Hosts of benchmarks/hosts.py are gone when it ends, however it ends. Nothing is measured here."""

import os
import pathlib
import signal
import subprocess
import sys

import hosts
import launching
import pytest

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import namespaces  # noqa: E402

pytestmark = pytest.mark.skipif(bool(hosts.why_not()), reason=hosts.why_not())

HOLD = """import time
from namespaces import network
with network(2, None) as made:
    print(made.folder, flush=True)
    time.sleep(600)"""


def existing() -> set[str]:
    """Names of namespaces."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines()}


def made_by(pid: int) -> set[str]:
    return {name for name in existing() if name.startswith(f"{namespaces.PREFIX}{pid}")}


def holding():
    """A process that has hosts until it ends."""
    return launching.start([sys.executable, "-c", HOLD], dict(os.environ, PYTHONPATH=str(BENCHMARKS)))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_hosts_behind(number):
    with holding() as process:
        folder = pathlib.Path(process.stdout.readline().strip())
        assert len(made_by(process.pid)) == 3  # with the switch
        process.send_signal(number)
        assert process.wait(timeout=60) == 128 + number
        assert not made_by(process.pid)
        assert not folder.exists()


def test_the_next_one_removes_what_a_killed_one_left():
    with holding() as process:
        folder = pathlib.Path(process.stdout.readline().strip())
        namespaces.remove_stale()
        assert len(made_by(process.pid)) == 3  # its owner lives
        process.kill()
        process.wait(timeout=60)
    assert len(made_by(process.pid)) == 3
    namespaces.remove_stale()
    assert not made_by(process.pid)
    assert not folder.exists()
    assert not pathlib.Path("/etc/netns", f"{namespaces.PREFIX}{process.pid}h0").exists()
