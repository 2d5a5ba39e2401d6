# SPDX-License-Identifier: Apache-2.0
"""Who does not know a job's token can neither join the job, nor harm it, nor learn the token."""

import base64
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys

import hosts
import launching
import pytest
from launching import HOROVODRUN

pytestmark = pytest.mark.skipif(hosts.why_not() != "", reason=hosts.why_not())

ATTACKER = pathlib.Path(__file__).with_name("attacker.py")

# Sums until a file appears; says at the end whether all of them were right.
STEADY = """
import os, sys, numpy as np, horovod.numpy as hvd
hvd.init()
folder, right, steps = sys.argv[1], True, 0
open(f"{folder}/{hvd.rank()}", "w").write(f"{os.getpid()}\\n")
go = True
while go:
    steps += 1
    here = np.arange(2000.0) + hvd.rank() + steps
    wanted = hvd.size() * (np.arange(2000.0) + steps) + sum(range(hvd.size()))
    right &= bool((hvd.allreduce(here, op=hvd.Sum, name="sum") == wanted).all())
    go = bool(hvd.broadcast(np.array([not os.path.exists(f"{folder}/../go")]), root_rank=0, name="go")[0])
print("right" if right else "wrong")
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """Hosts of a job, and one that is not."""
    made = hosts.network(tmp_path_factory.mktemp("hosts"), {"alpha": "eth0", "beta": "ib7", "mallory": "eth0"})
    with made as network:
        yield network
        hosts.nobody_left(network)


@pytest.fixture(scope="module")
def job(net, tmp_path_factory):
    """Run that job on two hosts, two ranks each, while a stranger does its worst; see that it ends well."""
    folder = tmp_path_factory.mktemp("job")
    ranks = folder / "ranks"
    ranks.mkdir()
    recorder = attacker(net, "record", folder / "recording", host="alpha")
    assert recorder.stdout.readline() == "recording\n"
    words = ["-np", "4", "-H", "alpha:2,beta:2", "--verbose", "--json", sys.executable, "-c", STEADY, ranks]
    with hosts.started(net["alpha"], net, *words, HOROVOD_LOG_LEVEL="trace") as process:
        launching.pids_in(ranks, 4)
        recorder.communicate(timeout=30)
        yield folder
        token = token_of(ranks / "0").read_text().strip()
        assert token not in finish(process, folder).lower()
    assert not (folder / "marker").exists()


@pytest.fixture(scope="module")
def attacks(net, job):
    """Every attack on every open port."""
    return attack(net, job / "marker")


def finish(process, folder, ranks=4):
    """Let the job end and see that it was not harmed; return all that it printed."""
    (folder / "go").touch()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert sorted(re.findall("[0-9]]<stdout>:(right|wrong)", out)) == ["right"] * ranks
    return out + err


def attacker(net, *words, host="mallory", **options):
    """Start the attacker on a host."""
    command = net[host].command(sys.executable, ATTACKER, *words)
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


def attack(net, marker):
    """Try every attack on every port of the job's hosts; return what came of it."""
    pids = [net[name].sshd.pid for name in ("alpha", "beta")]
    out, _ = attacker(net, "once", marker, *pids).communicate(timeout=60)
    return json.loads(out)


def all_failed(attacks, name="", ports=1):
    """See that attacks of this name, or all, found so many ports, and were of no avail there."""
    tried = [one for one in attacks if name in one["attack"]]
    assert len({one["port"] for one in tried}) == ports
    for one in tried:
        back = bytes.fromhex(one["back"])
        # At most the alert of TLS; and nobody is kept waiting for ever.
        assert one["end"] == "closed", one
        assert len(back) == 0 or (back[0] == 0x15 and len(back) < 16), one


# Of a job that runs one port is open, the store's: agents have all come, and ranks are connected.


def test_cve_2024_10190_pickles_for_the_rendezvous_server(attacks, job):
    all_failed(attacks, "CVE-2024-10190")
    assert not (job / "marker").exists()


def test_cve_2026_31234_pickles_in_the_key_value_store(attacks, job):
    all_failed(attacks, "CVE-2026-31234")
    assert not (job / "marker").exists()


def test_other_attacks(attacks, job):
    all_failed(attacks)
    assert len({one["attack"] for one in attacks}) >= 10
    assert not (job / "marker").exists()


def test_a_recording_of_the_start_is_of_no_use_later(net, job):
    address, port = variable_of(job / "ranks/2", "HOROVOD_RENDEZVOUS_ADDR").split(":")
    out, _ = attacker(net, "replay", job / "recording", address, port).communicate(timeout=60)
    replayed = json.loads(out)
    # Each rank of the other host was at the store.
    assert len(replayed) >= 2
    assert all(end == "closed" for _, end, _ in replayed), replayed


def test_a_rank_with_another_token_is_turned_away(net, job, tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_text("ab" * 32)
    wrong.chmod(0o600)
    store = variable_of(job / "ranks/2", "HOROVOD_RENDEZVOUS_ADDR")
    env = {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "4", "HOROVOD_RENDEZVOUS_ADDR": store, "HOROVOD_TOKEN_FILE": str(wrong)}
    result = subprocess.run(
        net["mallory"].command(sys.executable, "-c", "import horovod.numpy as hvd; hvd.init()"),
        env=launching.clean_environment(**env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert "another job token" in result.stderr


def test_the_token_is_in_no_listing(job):
    token = token_of(job / "ranks/0").read_text().strip()
    assert token_of(job / "ranks/2").read_text().strip() == token
    raw = bytes.fromhex(token)
    forms = [token.encode(), token.upper().encode(), raw, base64.b64encode(raw).rstrip(b"=")]
    looked_at = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                text = pathlib.Path("/proc", pid, name).read_bytes()
                looked_at += len(text) > 0
                assert not any(form in text for form in forms), (pid, name)
    assert looked_at > 12


def variable_of(file, name):
    """Return a variable in the environment of the process whose id is in a file."""
    text = pathlib.Path(f"/proc/{file.read_text().strip()}/environ").read_bytes()
    return re.search(rf"\0{name}=(.*?)\0".encode(), text).group(1).decode()


def token_of(file):
    return pathlib.Path(variable_of(file, "HOROVOD_TOKEN_FILE"))


@contextlib.contextmanager
def waiting_job(net, folder):
    """Start a job that waits for the agents of two hosts; give its process, the agents' address and the token file."""
    words = ["-np", "2", "-H", "beta,mallory", "--no-ssh", "--verbose", sys.executable, "-c", STEADY, folder]
    with hosts.started(net["alpha"], net, *words) as process:
        line = process.stderr.readline()
        yield process, *re.search(r"--driver (\S+) --token-file FILE, with a copy of (\S+)\n", line).groups()


def agent(net, name, address, file):
    return subprocess.Popen(
        net[name].command(HOROVODRUN, "agent", "--driver", address, "--token-file", file), env=net.environment()
    )


def test_attacks_and_replays_while_agents_come(net, tmp_path):
    folder = tmp_path / "ranks"
    folder.mkdir()
    recording = tmp_path / "recording"
    with waiting_job(net, folder) as (process, address, file):
        host, port = address.split(":")
        all_failed([one for one in attack(net, tmp_path / "marker") if one["port"] == int(port)])
        recorder = attacker(net, "record", recording, host="alpha")
        assert recorder.stdout.readline() == "recording\n"
        with agent(net, "beta", address, file) as beta:
            while "agents 1/2: beta is here" not in process.stderr.readline():
                pass
            recorder.communicate(timeout=30)
            out, _ = attacker(net, "replay", recording, host, port).communicate(timeout=60)
            replayed = json.loads(out)
            assert replayed
            assert all(end == "closed" for _, end, _ in replayed), replayed
            assert beta.poll() is None
            with agent(net, "mallory", address, file) as other:
                launching.pids_in(folder, 2)
                finish(process, tmp_path, ranks=2)
                assert (beta.wait(timeout=30), other.wait(timeout=30)) == (0, 0)


def test_a_flood_of_garbage_during_the_start(net, tmp_path):
    folder = tmp_path / "ranks"
    folder.mkdir()
    pids = [net[name].sshd.pid for name in ("alpha", "beta")]
    flood = attacker(net, "flood", tmp_path / "marker", *pids)
    words = ["-np", "4", "-H", "alpha:2,beta:2", "--start-timeout", "60", sys.executable, "-c", STEADY, folder]
    with hosts.started(net["alpha"], net, *words) as process:
        launching.pids_in(folder, 4)
        finish(process, tmp_path)
    out, _ = flood.communicate(timeout=60)
    done = json.loads(out)
    # Of agents and store at least; ranks' own ports are open for moments only.
    assert done["ports"] >= 2
    assert done["connections"] > 50
    assert not (tmp_path / "marker").exists()
