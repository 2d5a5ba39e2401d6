# SPDX-License-Identifier: Apache-2.0
"""A Slurm of one node for tests: munged, slurmctld and slurmd in a folder of their own, ended with the block."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

_DAEMONS = ("munged", "slurmctld", "slurmd", "srun")


def _find(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _configuration(folder: pathlib.Path) -> str:
    host = socket.gethostname().split(".")[0]
    return f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmctldPort={_free_port()}
SlurmdPort={_free_port()}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MailProg=/bin/true
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=100 State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


@contextlib.contextmanager
def cluster(folder: pathlib.Path) -> Iterator[dict[str, str]]:
    """Give the variables with which srun uses it. Skips the test where Slurm is not installed, or this is not root."""
    programs = {name: _find(name) for name in _DAEMONS}
    if os.getuid() != 0:
        pytest.skip("slurmd starts processes as other users: it needs root")
    # munged insists on folders that others can reach, and nobody else can write.
    for part in (folder, *folder.parents):
        if part != pathlib.Path("/tmp") and part != pathlib.Path("/"):
            part.chmod(0o755)
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir()
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    configuration = folder / "slurm.conf"
    configuration.write_text(_configuration(folder))
    # Found by slurmd through this; it must not look for cgroups.
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    env = {"SLURM_CONF": str(configuration)}
    started: list[subprocess.Popen] = []

    def start(words: list[str], **options) -> None:
        log = open(folder / f"{os.path.basename(words[0])}.out", "wb")  # noqa: SIM115
        with log:
            started.append(
                subprocess.Popen(
                    words,
                    env=dict(os.environ, **env),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    **options,
                )
            )

    munge = folder / "munge"
    try:
        start(
            [
                programs["munged"],
                "--foreground",
                "--force",
                f"--key-file={key}",
                f"--socket={folder}/munge.socket",
                f"--pid-file={munge}/pid",
                f"--log-file={munge}/log",
                f"--seed-file={munge}/seed",
            ]
        )
        _wait(lambda: (folder / "munge.socket").exists(), folder)
        start([programs["slurmctld"], "-D", "-c"])
        start([programs["slurmd"], "-D", "-c"])
        _wait(lambda: _answers(programs["srun"], env), folder)
        yield env
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(srun: str, env: dict[str, str]) -> bool:
    words = [srun, "--immediate=5", "-n", "1", "true"]
    return subprocess.run(words, env=dict(os.environ, **env), capture_output=True, check=False).returncode == 0


def _wait(condition, folder: pathlib.Path) -> None:
    limit = time.monotonic() + 60
    while not condition():
        if time.monotonic() > limit:
            logs = "\n".join(f"{file}:\n{file.read_text()[-2000:]}" for file in folder.glob("*.out"))
            logs += "\n".join(f"{file}:\n{file.read_text()[-2000:]}" for file in folder.glob("*.log"))
            pytest.fail(f"Slurm did not start\n{logs}")
        time.sleep(0.1)
