# SPDX-License-Identifier: Apache-2.0
"""
Hosts for tests: network namespaces on one switch, each with an interface of its own name and a real sshd.

What runs in one namespace reaches the others through their addresses alone, as between machines; processes and files
are shared, as the tests need. Needs root.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pathlib
import shutil
import subprocess
import time

import launching

SSH = shutil.which("ssh")
SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")

_networks = itertools.count()


def _run(*words: object) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{' '.join(map(str, words))}: {done.stderr}"
    return done.stdout


@functools.cache
def why_not() -> str:
    """Return why there can be no such hosts here; empty: there can."""
    for program, found in {"ip": shutil.which("ip"), "ssh": SSH, "sshd": SSHD}.items():
        if not found:
            return f"there is no {program}"
    if os.geteuid() != 0:
        return "namespaces with an sshd need root"
    name = f"hvd{os.getpid()}probe"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
        return "the kernel, or what confines this process, does not allow network namespaces"
    _run("ip", "netns", "delete", name)
    return ""


class Host:
    """One of them."""

    def __init__(self, name: str, interface: str, number: int, family: int, network: str) -> None:
        self.name, self.interface = name, interface
        self.namespace = network + name
        self.port = f"p{number}"  # of the switch
        self.address = f"10.77.0.{number}" if family == 4 else f"fd77::{number}"
        self.sshd: subprocess.Popen | None = None

    def command(self, *words: object) -> list[str]:
        """Return the words that run a command on this host."""
        return ["ip", "netns", "exec", self.namespace, *map(str, words)]

    def pids(self) -> set[int]:
        """Return the processes of this host; sshd's own, which belong to the machine, do not count."""
        return {int(pid) for pid in _run("ip", "netns", "pids", self.namespace).split() if _name(pid) != "sshd"}


def _command(pid: int) -> str:
    try:
        return f"{pid} {pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()!r}"
    except (FileNotFoundError, ProcessLookupError):
        return f"{pid}, gone"


def _name(pid: str) -> str:
    try:
        return pathlib.Path("/proc", pid, "comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return "sshd"


class Network:
    """The hosts and what connects them."""

    def __init__(self, folder: pathlib.Path, hosts: dict[str, str], family: int) -> None:
        self.folder, self.family = folder, family
        self.secrets = folder / "tmp"  # where jobs put their tokens
        own = f"hvd{os.getpid()}n{next(_networks)}"
        self.switch = own + "switch"
        self.hosts = {
            name: Host(name, interface, number, family, own)
            for number, (name, interface) in enumerate(hosts.items(), 1)
        }

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def build(self) -> None:
        self.secrets.mkdir()
        _run("ip", "netns", "add", self.switch)
        _run("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self.switch, "link", "set", "bridge", "up")
        for host in self.hosts.values():
            self._connect(host)
        self._make_keys()
        for host in self.hosts.values():
            self._start_sshd(host)

    def _connect(self, host: Host) -> None:
        etc = pathlib.Path("/etc/netns", host.namespace)
        etc.mkdir(parents=True)
        names = "".join(f"{other.address} {other.name}\n" for other in self.hosts.values())
        (etc / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n" + names)
        _run("ip", "netns", "add", host.namespace)
        _run(
            *("ip", "-n", host.namespace, "link", "add", host.interface, "type", "veth"),
            *("peer", "name", host.port, "netns", self.switch),
        )
        _run("ip", "-n", self.switch, "link", "set", host.port, "master", "bridge")
        _run("ip", "-n", self.switch, "link", "set", host.port, "up")
        width = 24 if self.family == 4 else 64
        nodad = [] if self.family == 4 else ["nodad"]
        _run("ip", "-n", host.namespace, "address", "add", f"{host.address}/{width}", "dev", host.interface, *nodad)
        for interface in ("lo", host.interface):
            _run("ip", "-n", host.namespace, "link", "set", interface, "up")

    def _make_keys(self) -> None:
        for name in ("host", "user", "stranger"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name)
        key = (self.folder / "host.pub").read_text()
        known = "".join(f"{host.name},{host.address} {key}" for host in self.hosts.values())
        (self.folder / "known_hosts").write_text(known)
        (self.folder / "ssh_config").write_text(
            f"UserKnownHostsFile {self.folder}/known_hosts\nGlobalKnownHostsFile /dev/null\n"
            f"IdentityFile {self.folder}/user\nIdentitiesOnly yes\nConnectTimeout 20\n"
        )
        self.programs("bin", ssh=f'#!/bin/sh\nexec {SSH} -F {self.folder}/ssh_config "$@"\n')

    def programs(self, folder: str, **scripts: str) -> pathlib.Path:
        """Make a folder of scripts, for PATH."""
        made = self.folder / folder
        made.mkdir()
        for name, text in scripts.items():
            (made / name).write_text(text)
            (made / name).chmod(0o755)
        return made

    def _start_sshd(self, host: Host) -> None:
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        config = self.folder / f"sshd_config.{host.name}"
        config.write_text(
            f"HostKey {self.folder}/host\nAuthorizedKeysFile {self.folder}/user.pub\nPidFile none\n"
            f"SetEnv TMPDIR={self.secrets}\n"
            "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nUseDNS no\n"
        )
        log = self.folder / f"sshd.log.{host.name}"
        host.sshd = subprocess.Popen(host.command(SSHD, "-D", "-f", config, "-E", log))
        launching.wait_until(lambda: log.exists() and "Server listening" in log.read_text())

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a user who has the keys."""
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        return launching.clean_environment(**{"PATH": path, "TMPDIR": str(self.secrets), "XDG_RUNTIME_DIR": "", **more})

    def cut(self, name: str) -> None:
        """Pull a host's plug: nothing gets through any more, and nobody is told."""
        _run("ip", "-n", self.switch, "link", "set", self.hosts[name].port, "down")

    def mend(self, name: str) -> None:
        """Put it in again."""
        _run("ip", "-n", self.switch, "link", "set", self.hosts[name].port, "up")

    def remove(self) -> None:
        for host in self.hosts.values():
            if host.sshd:
                host.sshd.kill()
                host.sshd.wait()
            # Sessions of sshd, and whatever a test that failed left behind.
            left = subprocess.run(["ip", "netns", "pids", host.namespace], capture_output=True, text=True, check=False)
            for pid in left.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
        for name in [self.switch, *(host.namespace for host in self.hosts.values())]:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
            shutil.rmtree(pathlib.Path("/etc/netns", name), ignore_errors=True)


@contextlib.contextmanager
def network(folder: pathlib.Path, hosts: dict[str, str], family: int = 4):
    """Make hosts, {name: name of its interface}; they are gone after the block."""
    made = Network(folder, hosts, family)
    try:
        made.build()
        yield made
    finally:
        made.remove()


def run(host: Host, net: Network, *words: object, timeout: float = 120, **env: str) -> subprocess.CompletedProcess:
    """Run horovodrun on a host to its end."""
    return launching.run(host.command(launching.HOROVODRUN, *words), net.environment(**env), timeout)


def started(host: Host, net: Network, *words: object, **env: str):
    """Start horovodrun on a host; it is gone after the block."""
    return launching.start(host.command(launching.HOROVODRUN, *words), net.environment(**env))


def nobody_left(net: Network, within: float = 10) -> None:
    """See that no process of a job is left on any host, and no token."""

    def left() -> list[str]:
        processes = [f"{host.name}: {_command(pid)}" for host in net.hosts.values() for pid in host.pids()]
        return processes + [str(token) for token in net.secrets.iterdir()]

    limit = time.monotonic() + within
    while some := left():
        assert time.monotonic() < limit, some
        time.sleep(0.02)
