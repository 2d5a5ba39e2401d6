# SPDX-License-Identifier: Apache-2.0
"""One machine: facts are gathered there, and judged by a function that touches nothing."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import resource
import socket
import sys

from horovod.doctor.findings import Finding, failure, passed, warning
from horovod.doctor.installation import Installation, inspect_installation, judge_installation

_MEBIBYTE = 1 << 20
# What a rank has open besides its connections: libraries, logs, data files.
_FILES_PER_RANK = 256
_ENOUGH_FILES = 1024
# The machine is busy if other programs use more than this share of its cores.
_BUSY = 0.5
_LITTLE_MEMORY = 512 * _MEBIBYTE


@dataclasses.dataclass
class Facts:
    """What was found on a machine. Plain values only: it travels as JSON."""

    host: str
    addresses: list[str]
    resolve_error: str
    cores: int
    load: float
    quota: float | None
    memory_left: int
    open_files: int
    useless_variables: dict[str, str]
    shared_memory_error: str
    listen_error: str
    installation: Installation

    @classmethod
    def from_json(cls, data: dict) -> Facts:
        """Return what dataclasses.asdict made a dictionary of."""
        return cls(**{**data, "installation": Installation(**data["installation"])})


def gather() -> Facts:
    """
    Look at this machine.

    >>> gather().cores >= 1
    True
    """
    host = socket.gethostname()
    addresses, resolve_error = resolve(host)
    return Facts(
        host=host,
        addresses=addresses,
        resolve_error=resolve_error,
        cores=len(os.sched_getaffinity(0)),
        load=os.getloadavg()[0],
        quota=_cpu_quota(),
        memory_left=_memory_left(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        useless_variables=_useless_variables(),
        shared_memory_error=_try_shared_memory(),
        listen_error=_try_to_listen(),
        installation=inspect_installation(),
    )


def resolve(host: str) -> tuple[list[str], str]:
    """Return the addresses of a name, or why there are none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return [], str(error)
    return list(dict.fromkeys(entry[4][0] for entry in found)), ""


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return ""


def _cpu_quota() -> float | None:
    quota, _, period = _read("/sys/fs/cgroup/cpu.max").partition(" ")
    if not quota:
        quota, period = _read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), _read("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    try:
        return int(quota) / int(period) if int(quota) > 0 else None
    except ValueError:
        return None


def _memory_left() -> int:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            left = int(line.split()[1]) << 10
            break
    else:
        left = sys.maxsize
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        most, now = _read(limit), _read(used)
        if most.isdigit() and now.isdigit():
            left = min(left, int(most) - int(now))
    return left


def _useless_variables() -> dict[str, str]:
    """Return the variables that do nothing, with what is known of each."""
    import difflib
    import re

    from horovod.common.library import load

    try:
        table = load().hvd_describe_config().decode()
    except ImportError:
        return {}
    known = set(re.findall(r"^\| `(HOROVOD_\w+)`", table, flags=re.M))
    without_effect = dict(re.findall(r"^\| `(HOROVOD_\w+)` \| ([^|]*) \|$", table, flags=re.M))
    useless = {}
    for name in sorted(name for name in os.environ if name.startswith("HOROVOD_")):
        if name in without_effect:
            useless[name] = without_effect[name]
        elif name not in known:
            near = difflib.get_close_matches(name, known - set(without_effect), 1, 0.8)
            useless[name] = f"not known; is {near[0]} meant?" if near else "not known"
    return useless


def _try_shared_memory() -> str:
    try:
        descriptor = os.memfd_create("horovod-doctor")
    except OSError as error:
        return str(error)
    try:
        os.posix_fallocate(descriptor, 0, _MEBIBYTE)
    except OSError as error:
        return str(error)
    finally:
        os.close(descriptor)
    return ""


def _try_to_listen() -> str:
    try:
        with socket.create_server(("", 0)):
            return ""
    except OSError as error:
        return str(error)


def examine(facts: Facts, ranks: int | None = None, elsewhere: bool = False) -> list[Finding]:
    """
    Judge the facts of one machine for so many ranks on it.

    `elsewhere`: the job has ranks on other machines, too.

    >>> facts = dataclasses.replace(gather(), cores=2, quota=None)
    >>> [finding.level.value for finding in examine(facts, ranks=4) if finding.what == "cores"]
    ['WARN']
    """
    findings = [
        *judge_installation(facts.installation),
        _judge_name(facts, elsewhere),
        _judge_cores(facts, ranks),
        _judge_load(facts),
        _judge_memory(facts),
        _judge_files(facts, ranks),
        _judge_variables(facts),
    ]
    if elsewhere:
        findings.append(
            failure("ports", f"no TCP port can be opened: {facts.listen_error}", "allow this user to listen on ports")
            if facts.listen_error
            else passed("ports", "a TCP port can be opened")
        )
    return findings


def _judge_name(facts: Facts, elsewhere: bool) -> Finding:
    fix = f"add a line for {facts.host} with the machine's address to /etc/hosts"
    if facts.resolve_error:
        text = f"this machine's name, {facts.host}, has no address: {facts.resolve_error}"
        return failure("name", text, fix) if elsewhere else warning("name", text, fix)
    if elsewhere and all(address.startswith("127.") or address == "::1" for address in facts.addresses):
        text = f"{facts.host} means only {', '.join(facts.addresses)}, which other machines cannot reach"
        return warning("name", text, fix + ", or give addresses with -H")
    return passed("name", f"{facts.host} is {', '.join(facts.addresses)}")


def _judge_cores(facts: Facts, ranks: int | None) -> Finding:
    usable = facts.cores if facts.quota is None else min(facts.cores, facts.quota)
    text = f"{usable:g} usable" + (f" (quota of this container; {facts.cores} seen)" if usable < facts.cores else "")
    if ranks is not None and ranks > usable:
        fix = f"start at most {max(int(usable), 1)} ranks here, or give the container or job more cores"
        return warning("cores", f"{text}, {ranks} ranks", fix)
    return passed("cores", text if ranks is None else f"{text}, {ranks} {'rank' if ranks == 1 else 'ranks'}")


def _judge_load(facts: Facts) -> Finding:
    text = f"{facts.load:.1f} processes ran or waited for a core in the last minute, on {facts.cores} cores"
    if facts.load > _BUSY * facts.cores:
        return warning("load", f"{text}: times that are measured now are too long", "end other programs, see top")
    return passed("load", text)


def _judge_memory(facts: Facts) -> Finding:
    if facts.shared_memory_error:
        return warning(
            "shared memory",
            f"none can be had ({facts.shared_memory_error}): ranks of this machine use TCP, which is slower",
            "allow memfd_create in the container's profile, and more memory",
        )
    text = f"works; {facts.memory_left // _MEBIBYTE} MiB of memory are free"
    if facts.memory_left < _LITTLE_MEMORY:
        return warning("shared memory", text, "free some, or raise the container's limit")
    return passed("shared memory", text)


def _judge_files(facts: Facts, ranks: int | None) -> Finding:
    text = f"{facts.open_files} open files per process"
    needed = max(_ENOUGH_FILES, _FILES_PER_RANK + 4 * (ranks or 0))
    if facts.open_files < needed:
        return warning("limits", text, f"ulimit -n {needed}")
    return passed("limits", text)


def _judge_variables(facts: Facts) -> Finding:
    if not facts.useless_variables:
        return passed("variables", "every HOROVOD_* variable that is set has an effect")
    names = [f"{name} ({why})" for name, why in facts.useless_variables.items()]
    return warning(
        "variables",
        f"without effect: {', '.join(names)}",
        "see docs/reference/environment.md for the names",
    )
