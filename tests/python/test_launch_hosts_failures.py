# SPDX-License-Identifier: Apache-2.0
"""Hosts that cannot be reached, are not fit, come too late or are lost: each has its own end, and nothing is left."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import hosts
import launching
import pytest
from launching import HOROVODRUN, report

pytestmark = pytest.mark.skipif(hosts.why_not() != "", reason=hosts.why_not())


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """Three hosts."""
    with hosts.network(tmp_path_factory.mktemp("hosts"), {"alpha": "eth0", "beta": "ib7", "gamma": "wlan3"}) as made:
        yield made
        hosts.nobody_left(made)


def ssh_instead(net, name, text):
    """Return a PATH on which ssh is this script; REAL in it stands for the one that works."""
    folder = net.programs(
        name,
        ssh="#!/bin/sh\n" + text.replace("REAL", f"{net.folder}/bin/ssh").replace("KNOWN", f"{net.folder}/known_hosts"),
    )
    return f"{folder}:{os.environ['PATH']}"


# Exit code, words of the report, flags, and what ssh is.
ENDS = {
    "no such name": (
        121,
        ["host nowhere.invalid: ssh ended with exit code 255", "Could not resolve hostname"],
        [],
        None,
    ),
    "nobody listens": (121, ["host beta: ssh ended with exit code 255", "Connection refused"], ["-p", "1"], None),
    "a wrong key": (
        121,
        ["host beta: ssh ended with exit code 255", "Permission denied", "ssh-copy-id beta"],
        [],
        'exec /usr/bin/ssh -F /dev/null -o UserKnownHostsFile=KNOWN -o IdentitiesOnly=yes -i /dev/null "$@"',
    ),
    "an unknown host key": (
        121,
        ["host beta: ssh ended with exit code 255", "Host key verification failed", "ssh beta true"],
        [],
        'exec REAL -o UserKnownHostsFile=/dev/null "$@"',
    ),
    "no agent": (122, ["host beta: there is no /no/such/horovodrun", "and no horovodrun in PATH there"], [], None),
    "another version": (
        122,
        ["host beta: it has horovodrun 9.9.9, this is "],
        [],
        "echo noise; echo hvd-agent 9.9.9; cat",
    ),
    "too slow": (
        124,
        ["host beta: not there after 2 s: beta: ssh has not got through"],
        ["--start-timeout", "2"],
        "exec sleep 100",
    ),
    "no way back": (
        121,
        ["host beta: its agent cannot reach this machine: nobody answered within "],
        ["--driver-address", "127.0.0.1", "--start-timeout", "6"],
        None,
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_job_that_cannot_begin(how, net, tmp_path):
    code, texts, flags, script = ENDS[how]
    if how == "no agent":
        # As if this machine had its program elsewhere.
        script = (
            f"""for last; do :; done; exec REAL beta "$(echo "$last" | sed 's|{HOROVODRUN}|/no/such/horovodrun|')" """
        )
        texts = [text.replace("/no/such/horovodrun", HOROVODRUN) for text in texts]
    env = {} if script is None else {"PATH": ssh_instead(net, how.replace(" ", "-"), script)}
    where = "nowhere.invalid" if how == "no such name" else "beta"
    words = ["-np", "2", "-H", f"alpha:1,{where}:1", *flags, "--json", "touch", tmp_path / "ran"]
    result = hosts.run(net["alpha"], net, *words, **env)
    assert result.returncode == code, result.stderr
    for text in texts:
        assert text in result.stderr
    assert result.stderr.startswith("horovodrun: the job failed: host ")
    assert result.stderr.count("\n") == 2
    assert "  suggestion: " in result.stderr
    said = report(result)
    assert (said["status"], said["exit_code"], said["host"]) == ("failed", code, where)
    assert not (tmp_path / "ran").exists()
    hosts.nobody_left(net)


def test_agents_that_nobody_starts_are_missed(net):
    words = ["-np", "2", "-H", "beta,gamma", "--no-ssh", "--start-timeout", "2", "true"]
    result = hosts.run(net["alpha"], net, *words)
    assert result.returncode == 124
    assert "host beta, gamma: not there after 2 s: beta: no agent has come from there to 10.77.0.1:" in result.stderr


def test_a_slow_host_is_waited_for_and_named_meanwhile(net):
    path = ssh_instead(net, "slow", 'sleep 3.5; exec REAL "$@"')
    result = hosts.run(net["alpha"], net, "-np", "1", "-H", "beta:1", "--verbose", "true", PATH=path)
    assert result.returncode == 0, result.stderr
    assert "s: still waiting for beta: ssh has not got through to it yet; " in result.stderr


@pytest.mark.parametrize(
    ("folder", "program", "code", "text"),
    [
        ("here", "true", 122, "there is no folder {}/here there, from which horovodrun was started"),
        ("/", "{}/mine", 127, "{}/mine: there is no such program"),
    ],
)
def test_a_folder_or_program_that_is_here_alone(folder, program, code, text, net, tmp_path):
    # A mount of this process's own: other hosts do not see it.
    mount = f"mount -t tmpfs none {tmp_path} && cd {tmp_path} && mkdir here && cp /bin/true mine && cd {folder}"
    job = f"exec {HOROVODRUN} -np 2 -H alpha:1,beta:1 {program.format(tmp_path)}"
    result = subprocess.run(
        net["alpha"].command("unshare", "-m", "sh", "-c", f"{mount} && {job}"),
        env=net.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == code, result.stderr
    assert f"host beta: {text.format(tmp_path)}" in result.stderr
    hosts.nobody_left(net)


# Ranks that train until they cannot, each with a child that would stay.
ENDLESS = """
import os, subprocess, sys, time, numpy as np, horovod.numpy as hvd
subprocess.Popen(["sleep", "1000"], start_new_session=True)
hvd.init()
hvd.allreduce(np.ones(10), name="a")
open(os.path.join(sys.argv[1], str(hvd.rank())), "w").write(f"{os.getpid()}\\n")
while True:
    hvd.allreduce(np.ones(10), name="a")
    time.sleep(0.01)
"""


def endless(net, folder, *flags):
    """Start that on two hosts, two ranks each; horovodrun runs on a third one."""
    words = ["-np", "4", "-H", "alpha:2,beta:2", "--json", "--grace-period", "2", *flags]
    env = {"HOROVOD_HEARTBEAT_TIMEOUT_SECONDS": "4"}
    return hosts.started(net["gamma"], net, *words, sys.executable, "-c", ENDLESS, folder, **env)


def agent_of(host):
    """Return the process id of a host's agent; its warden has another name."""
    (agent,) = [pid for pid in host.pids() if pathlib.Path(f"/proc/{pid}/comm").read_text() == "horovodrun\n"]
    return agent


def lost_host(process, name):
    """See how the job ends when a host is lost; return the report."""
    out, err = process.communicate(timeout=60)
    said = json.loads(out.splitlines()[-1])
    assert process.returncode == 123, err
    assert (said["first"]["host"], said["exit_code"]) == (name, 123), err
    assert f"horovodrun: the job failed: host {name} was lost: " in err
    return said


def test_a_killed_agent_ends_the_job_and_is_named(net, tmp_path):
    with endless(net, tmp_path) as process:
        launching.pids_in(tmp_path, 4)
        os.kill(agent_of(net["beta"]), signal.SIGKILL)
        said = lost_host(process, "beta")
    assert said["first"]["host_lost"].startswith("the connection to its agent ended")
    hosts.nobody_left(net)


def test_an_agent_that_is_asked_to_end_says_so(net, tmp_path):
    with endless(net, tmp_path) as process:
        launching.pids_in(tmp_path, 4)
        os.kill(agent_of(net["beta"]), signal.SIGTERM)
        assert lost_host(process, "beta")["first"]["host_lost"] == "its agent was ended by SIGTERM"
    hosts.nobody_left(net)


def test_a_stopped_agent_is_missed_and_ended(net, tmp_path):
    with endless(net, tmp_path) as process:
        launching.pids_in(tmp_path, 4)
        os.kill(agent_of(net["beta"]), signal.SIGSTOP)
        assert lost_host(process, "beta")["first"]["host_lost"] == "it did not respond for 4 s"
    # It stays stopped, and is killed with its ranks when its line has ended.
    hosts.nobody_left(net, within=15)


def test_a_stopped_agent_behind_a_cut_cable_is_ended_there(net, tmp_path):
    with endless(net, tmp_path) as process:
        launching.pids_in(tmp_path, 4)
        os.kill(agent_of(net["beta"]), signal.SIGSTOP)
        net.cut("beta")
        try:
            lost_host(process, "beta")
            hosts.nobody_left(net, within=20)
        finally:
            net.mend("beta")


def test_a_cut_cable_ends_the_job_and_the_host_cleans_up_by_itself(net, tmp_path):
    with endless(net, tmp_path) as process:
        launching.pids_in(tmp_path, 4)
        net.cut("beta")
        try:
            said = lost_host(process, "beta")
            assert said["first"]["host_lost"] == "it did not respond for 4 s"
            hosts.nobody_left(net, within=10)
        finally:
            net.mend("beta")


def test_a_killed_driver_leaves_nothing_anywhere(net, tmp_path):
    with endless(net, tmp_path) as process:
        launching.pids_in(tmp_path, 4)
        process.kill()
        process.wait()
        hosts.nobody_left(net, within=10)
