# SPDX-License-Identifier: Apache-2.0
"""The other hosts: whether they can be reached, and a job of one rank per host that examines and measures them."""

from __future__ import annotations

import dataclasses
import json
import shutil
import socket
import subprocess
import sys

from horovod.doctor.findings import MARK, Finding, Level, failure, passed, warning
from horovod.doctor.machine import Facts, examine, resolve
from horovod.doctor.speed import measure_here
from horovod.runner.program import find_horovodrun

_SSH_PATIENCE = 15
_JOB_PATIENCE = 120
_CLOCK_LIMIT = 1.0
# Of the fastest pair's: slower ones are pointed out.
_SLOW = 0.3


@dataclasses.dataclass(frozen=True)
class Host:
    """An entry of -H."""

    name: str
    slots: int

    @property
    def entry(self) -> str:
        """Return it for a job with one rank there."""
        return f"[{self.name}]:1" if ":" in self.name else f"{self.name}:1"


def parse_hosts(text: str) -> list[Host]:
    """
    Read what -H takes.

    >>> parse_hosts("a:2,b,[::1]:3")
    [Host(name='a', slots=2), Host(name='b', slots=1), Host(name='::1', slots=3)]
    """
    hosts = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, slots = entry.rpartition(":")
        if entry.startswith("[") and entry.endswith("]"):
            name, colon, slots = entry, "", ""
        if colon and not slots.isdigit():
            raise ValueError(f"-H: '{entry}' is not HOST or HOST:SLOTS")
        name = (name if colon else entry).strip("[]")
        hosts.append(Host(name, int(slots) if colon else 1))
    if not hosts:
        raise ValueError(f"-H: '{text}' names no host")
    return hosts


def _is_here(host: str) -> bool:
    return host in ("localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn())


def reach(hosts: list[Host], ssh_options: list[str]) -> list[Finding]:
    """Resolve the names, and log in where a rank would be started."""
    findings = []
    for host in hosts:
        addresses, error = resolve(host.name)
        if error:
            findings.append(
                failure("name", f"{host.name} has no address: {error}", "check the spelling, DNS or /etc/hosts")
            )
            continue
        findings.append(passed("name", f"{host.name} is {', '.join(addresses)}"))
        if not _is_here(host.name):
            findings.append(_log_in(host.name, ssh_options))
    return findings


def _log_in(host: str, options: list[str]) -> Finding:
    if shutil.which("ssh") is None:
        return failure("ssh", "there is no ssh here", "install openssh-client, or use --no-ssh")
    command = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_SSH_PATIENCE // 2}", *options, host, "true"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SSH_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return failure("ssh", f"{host} did not answer within {_SSH_PATIENCE} s", f"try: ssh {host} true")
    if done.returncode == 0:
        return passed("ssh", f"{host} can be logged in to without a password")
    said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return failure("ssh", f"{host}: {said}", f"make this work without a question: ssh {host} true (see ssh-copy-id)")


def measure(hosts: list[Host] | None, ranks: int | None, ssh_options: list[str]) -> tuple[list[Finding], dict]:
    """
    Start a job with a rank on each host, or two here, and judge what it says. Also returns what it measured.

    >>> findings, measured = measure(None, None, [])
    >>> len(measured["pairs"])
    1
    """
    several = hosts is not None and len(hosts) > 1
    names = [host.name for host in hosts] if several else ["rank 0", "rank 1"]
    where = ["-H", ",".join(host.entry for host in hosts)] if several else []
    if not several and hosts is not None:
        where = ["-H", hosts[0].entry[: hosts[0].entry.rindex(":")] + ":2"]
    command = [find_horovodrun(), "-np", str(len(names)), *where, *ssh_options]
    command += [sys.executable, "-m", "horovod.doctor.rank", str(len(names))]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_JOB_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return [failure("job", f"a job of {len(names)} ranks did not end within {_JOB_PATIENCE} s", "see above")], {}
    result = next((line.partition(MARK)[2] for line in done.stdout.splitlines() if MARK in line), None)
    if done.returncode != 0 or result is None:
        said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        return [failure("job", f"a job of {len(names)} ranks failed:\n{said}", "mend what it says, then try again")], {}
    measured = json.loads(result)
    measured["names"] = names
    findings = [passed("job", f"{len(names)} ranks {'on ' + ', '.join(names) if several else 'of this machine'} ran")]
    if several:
        for host, data in zip(hosts, measured["facts"]):
            share = host.slots if ranks is None else min(host.slots, ranks)
            found = examine(Facts.from_json(data), share, elsewhere=True)
            findings += [dataclasses.replace(finding, host=host.name) for finding in found]
        findings += _judge_versions(names, measured["facts"]) + _judge_clocks(names, measured["clocks"])
    else:
        measured["pairs"] = measure_here() or measured["pairs"]
    return findings + _judge_pairs(names, measured["pairs"]), measured


def _judge_versions(names: list[str], facts: list[dict]) -> list[Finding]:
    versions = {name: data["installation"]["version"] for name, data in zip(names, facts)}
    if len(set(versions.values())) == 1:
        return [passed("versions", f"hvd {next(iter(versions.values()))} everywhere")]
    text = ", ".join(f"{name}: {version}" for name, version in versions.items())
    return [failure("versions", f"hvd differs: {text}", "install the same version everywhere")]


def _judge_clocks(names: list[str], clocks: list[float]) -> list[Finding]:
    worst = max(clocks, key=abs)
    if abs(worst) < _CLOCK_LIMIT:
        return [passed("clocks", f"within {max(abs(worst), 0.001):.3f} s of each other")]
    text = f"{names[clocks.index(worst)]} is {worst:+.1f} s from {names[0]}: times in logs do not compare"
    return [warning("clocks", text, "run an NTP service (chrony, systemd-timesyncd) on all hosts")]


def _judge_pairs(names: list[str], pairs: list[list]) -> list[Finding]:
    if not pairs:
        return []
    best = max(pair[3] for pair in pairs)
    slow = [pair for pair in pairs if pair[3] < _SLOW * best]
    width = max(map(len, names))
    lines = [
        f"{names[one]:<{width}}  {names[other]:<{width}}  {latency:9.1f} us  {bandwidth:9.0f} MB/s"
        for one, other, latency, bandwidth in pairs
    ]
    text = "4 bytes summed, 8 MiB sent\n" + "\n".join(lines)
    if not slow:
        return [passed("network" if len(names) > 2 else "speed", text)]
    named = ", ".join(f"{names[pair[0]]}-{names[pair[1]]}" for pair in slow)
    fix = "look at the link (ethtool), the MTU, and what else uses the network"
    return [Finding(Level.WARN, "network", f"{named} much slower than the best pair; {text}", fix)]
