# SPDX-License-Identifier: Apache-2.0
"""Hosts for benchmarks: network namespaces on one switch, with links of a given rate. Needs root."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# What a token bucket of a rate lets through of a TCP stream: it counts Ethernet's headers, too.
GOODPUT = 1448 / 1514
PREFIX = "hvdb"  # of the namespaces' names; the number of the process that made them follows


class Network:
    """Some hosts; `rate` in bit/s limits each one's link in both directions, None is as fast as the machine."""

    def __init__(self, hosts: int, rate: int | None) -> None:
        self.rate = rate
        self.own = f"{PREFIX}{os.getpid()}"
        self.names = [f"{self.own}h{i}" for i in range(hosts)]
        self.addresses = [f"10.79.0.{i + 1}" for i in range(hosts)]
        self.folder = Path(tempfile.mkdtemp(prefix=f"hvd-bench-{os.getpid()}-"))

    def inside(self, host: int, *words: object) -> list[str]:
        """Return the words that run a command on a host."""
        return ["ip", "netns", "exec", self.names[host], *map(str, words)]

    def build(self) -> None:
        switch = self.own + "s"
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for number, (name, address) in enumerate(zip(self.names, self.addresses)):
            port = f"p{number}"
            _ip("netns", "add", name)
            _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", switch)
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", "eth0", "up")
            # As hvd chooses by itself: with bbr, the default of some machines, everybody would be several times slower.
            route = f"10.79.0.0/24 dev eth0 proto kernel scope link src {address} congctl cubic"
            _ip("-n", name, "route", "change", *route.split())
            _ip("-n", switch, "link", "set", port, "master", "bridge")
            _ip("-n", switch, "link", "set", port, "up")
            if self.rate:
                for namespace, device in ((name, "eth0"), (switch, port)):
                    limit = f"tbf rate {self.rate}bit burst 128kb latency 10ms"
                    _run("ip", "netns", "exec", namespace, "tc", "qdisc", "add", "dev", device, "root", *limit.split())
            etc = Path("/etc/netns", name)
            etc.mkdir(parents=True)
            known = "".join(f"{a} {n}\n" for n, a in zip(self.names, self.addresses))
            (etc / "hosts").write_text("127.0.0.1 localhost\n" + known)
        # What mpirun uses in place of ssh.
        agent = self.folder / "agent"
        agent.write_text(
            '#!/bin/sh\nhost=$1; shift\nexec ip netns exec $host unshare --uts sh -c "hostname $host; $*"\n'
        )
        agent.chmod(0o755)

    def remove(self) -> None:
        for name in [*self.names, self.own + "s"]:
            _remove(name)
        shutil.rmtree(self.folder, ignore_errors=True)


def _remove(namespace: str) -> None:
    subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)
    shutil.rmtree(Path("/etc/netns", namespace), ignore_errors=True)


def remove_stale() -> None:
    """Remove what benchmarks left that were killed."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for name, pid in re.findall(rf"^({PREFIX}(\d+)(?:h\d+|s))\b", listed, re.MULTILINE):
        if not Path("/proc", pid).exists():
            _remove(name)
    for folder in Path(tempfile.gettempdir()).glob("hvd-bench-*-*"):
        pid = folder.name.split("-")[2]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def left_in_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP leave the block as an exception does, instead of ending the program at once."""

    def leave(number: int, _) -> None:
        for one in before:
            signal.signal(one, signal.SIG_IGN)  # cleaning up is not interrupted
        sys.exit(128 + number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # nohup
            signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def _ip(*words: str) -> None:
    _run("ip", *words)


@contextlib.contextmanager
def network(hosts: int, rate: int | None) -> Iterator[Network]:
    """Make hosts; they are gone after the block, also when a signal ends the program."""
    remove_stale()
    with left_in_order():
        made = Network(hosts, rate)
        try:
            made.build()
            yield made
        finally:
            made.remove()
