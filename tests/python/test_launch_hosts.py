# SPDX-License-Identifier: Apache-2.0
"""horovodrun across hosts: by ssh and by agents that somebody else started, over IPv4 and IPv6."""

import pathlib
import re
import signal
import stat
import subprocess
import sys

import hosts
import launching
import pytest
from launching import HOROVODRUN, report

pytestmark = pytest.mark.skipif(hosts.why_not() != "", reason=hosts.why_not())

# A line through noisy points, fitted by all ranks together; each prints what it found, bit for bit.
TRAINING = """
import os, numpy as np, horovod.numpy as hvd
hvd.init()
random = np.random.default_rng(hvd.rank())
x = random.normal(size=100)
y = 3 * x + 1 + 0.01 * random.normal(size=100)
weights = hvd.broadcast(random.normal(size=2), root_rank=0, name="weights")
for step in range(200):
    error = weights[0] * x + weights[1] - y
    gradient = hvd.allreduce(np.array([np.mean(error * x), np.mean(error)]), name="gradient")
    weights = weights - 0.1 * gradient
assert np.allclose(weights, [3, 1], atol=0.01), weights
host = os.environ["HOROVOD_HOSTNAME"]
print(host, hvd.rank(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), weights.tobytes().hex())
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """Three hosts whose interfaces have different names."""
    with hosts.network(tmp_path_factory.mktemp("hosts"), {"alpha": "eth0", "beta": "ib7", "gamma": "wlan3"}) as made:
        yield made
        hosts.nobody_left(made)


def check_training(result, places):
    """See that each rank was where it should be, all found the same, and hosts talked over TCP alone."""
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if " I hvd]" not in line]
    said = sorted(line.split(">:", 1)[1].split() for line in lines)
    assert [tuple(words[:5]) for words in said] == places
    assert len({words[5] for words in said}) == 1
    size = len(places)
    for _, rank, _, local_size, _ in places:
        ways = f"{local_size} ranks of this host by [a-zA-Z ]+, {size - int(local_size)} others by TCP"
        assert re.search(f"rank {rank} of {size}: {ways}", result.stdout + result.stderr)


TWO_AND_TWO = [
    ("alpha", "0", "0", "2", "0"),
    ("alpha", "1", "1", "2", "0"),
    ("beta", "2", "0", "2", "1"),
    ("beta", "3", "1", "2", "1"),
]


def test_training_by_ssh(net):
    words = ["-np", "4", "-H", "alpha:2,beta:2", sys.executable, "-c", TRAINING]
    result = hosts.run(net["alpha"], net, *words, HOROVOD_LOG_LEVEL="info")
    check_training(result, TWO_AND_TWO)
    hosts.nobody_left(net)


def agent(host, net, *words):
    """Start an agent as somebody else would."""
    return launching.start(host.command(HOROVODRUN, "agent", *words), net.environment(), stdout=None)


def test_training_over_ipv6_alone(tmp_path):
    with hosts.network(tmp_path, {"alpha": "eth0", "beta": "ib7"}, family=6) as net6:
        words = ["-np", "4", "-H", "alpha:2,[fd77::2]:2"]
        training = [sys.executable, "-c", TRAINING]
        places = [(place[0].replace("beta", "fd77::2"), *place[1:]) for place in TWO_AND_TWO]
        by_ssh = hosts.run(net6["alpha"], net6, *words, *training, HOROVOD_LOG_LEVEL="info")
        check_training(by_ssh, places)
        with hosts.started(net6["alpha"], net6, *words, "--no-ssh", *training, HOROVOD_LOG_LEVEL="info") as process:
            line = process.stderr.readline()
            address, file = re.search(r"--driver (\S+) --token-file FILE, with a copy of (\S+)\n", line).groups()
            assert address.startswith("[fd77::1]:")
            with agent(net6["beta"], net6, "--driver", address, "--token-file", file) as other:
                out, err = process.communicate(timeout=60)
                check_training(subprocess.CompletedProcess([], process.returncode, out, err), places)
                assert other.wait(timeout=30) == 0
        hosts.nobody_left(net6)


def test_training_by_agents_of_somebody_else_with_uneven_slots(net, tmp_path):
    token = tmp_path / "token"
    token.write_text("5a" * 32)
    token.chmod(0o600)
    flags = ["-np", "3", "-H", "alpha:2,beta:1", "--no-ssh", "--token-file", token, "--driver-address", "alpha:4711"]
    # Agents may come before there is anybody to come to.
    with agent(net["beta"], net, "--driver", "alpha:4711", "--token-file", token, "--host", "beta") as other:
        result = hosts.run(net["alpha"], net, *flags, sys.executable, "-c", TRAINING, HOROVOD_LOG_LEVEL="info")
        places = [*TWO_AND_TWO[:2], ("beta", "2", "0", "1", "1")]
        check_training(result, places)
        assert other.wait(timeout=30) == 0
    assert "waiting for agents of beta" in result.stderr
    command = "horovodrun agent --host NAME --driver 10.77.0.1:4711 --token-file FILE"
    assert f"a FILE of mode 0600: {command}, with a copy of {token}" in result.stderr
    assert token.exists()


def test_agents_find_out_which_host_they_are_and_strangers_are_told(net, tmp_path):
    with hosts.started(net["alpha"], net, "-np", "2", "-H", "beta,gamma", "--no-ssh", "echo", "well") as process:
        line = process.stderr.readline()
        address, file = re.search(r"--driver (\S+) --token-file FILE, with a copy of (\S+)\n", line).groups()
        assert address.startswith("10.77.0.1:")
        with agent(net["beta"], net, "--driver", address, "--token-file", file, "--host", "delta") as stranger:
            assert stranger.wait(timeout=30) == 2
            assert (
                "agents are expected of beta, gamma: say which one this is with --host NAME" in stranger.stderr.read()
            )
        wrong = tmp_path / "token"
        wrong.write_text("00" * 32)
        wrong.chmod(0o600)
        with agent(net["beta"], net, "--driver", address, "--token-file", wrong) as liar:
            assert liar.wait(timeout=30) == 121
            assert "another job token" in liar.stderr.read()
        flags = ["--driver", address, "--token-file", file]
        with agent(net["beta"], net, *flags) as beta, agent(net["gamma"], net, *flags) as gamma:
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0
            refused = [line for line in err.splitlines() if line.startswith("horovodrun: turned an agent away: ")]
            assert len(refused) == len(err.splitlines()) == 2, err
            assert "no host of this job is called delta" in refused[0]
            assert "another job token" in refused[1]
            assert sorted(out.splitlines()) == ["[0]<stdout>:well", "[1]<stdout>:well"]
            assert (beta.wait(timeout=30), gamma.wait(timeout=30)) == (0, 0)


SEES = """
import os, stat, sys
print(os.getcwd(), os.environ["ODD.NAME"], os.environ["HOME"], os.environ.get("SSH_CONNECTION", "").split()[:1])
if os.environ["HOROVOD_RANK"] == "1":
    file = os.environ["HOROVOD_TOKEN_FILE"]
    print(file, oct(os.stat(file).st_mode), oct(os.stat(os.path.dirname(file)).st_mode))
    sys.stdout.write("no end"); sys.stderr.write("caf\\u00e9\\n")
"""


@pytest.mark.row("f1")
def test_what_ranks_on_other_hosts_see(net, tmp_path):
    words = [
        "-np",
        "2",
        "-H",
        "alpha:1,beta:1",
        "-x",
        "ODD.NAME=a 'b' $c",
        "--log-dir",
        tmp_path,
        sys.executable,
        "-c",
        SEES,
    ]
    result = hosts.run(net["alpha"], net, *words, HOME="/of/alpha")
    assert result.returncode == 0, result.stderr
    there = [line for line in result.stdout.splitlines() if line.startswith("[1]")]
    here = pathlib.Path.cwd()
    home = pathlib.Path("~root").expanduser()
    assert there[0] == f"[1]<stdout>:{here} a 'b' $c {home} ['10.77.0.1']"
    file, file_mode, folder_mode = there[1].removeprefix("[1]<stdout>:").split()
    assert (file_mode, folder_mode) == (oct(stat.S_IFREG | 0o600), oct(stat.S_IFDIR | 0o700))
    assert not pathlib.Path(file).parent.exists()
    assert there[2] == "[1]<stdout>:no end"
    assert result.stderr == "[1]<stderr>:café\n"
    assert (tmp_path / "latest/rank.1/stderr").read_text() == "café\n"


def test_signals_reach_ranks_of_all_hosts(net, tmp_path):
    script = "import os, signal, sys, time\nsignal.signal(signal.SIGUSR1, lambda *_: print('usr1', flush=True))\n"
    script += f"open('{tmp_path}/' + str(os.getpid()), 'w').write(f'{{os.getpid()}}\\n')\nwhile True: time.sleep(0.05)"
    words = ["-np", "2", "-H", "alpha:1,beta:1", "--json", sys.executable, "-c", script]
    with hosts.started(net["alpha"], net, *words) as process:
        pids = launching.pids_in(tmp_path, 2)
        process.send_signal(signal.SIGUSR1)
        assert sorted([process.stdout.readline(), process.stdout.readline()]) == [
            "[0]<stdout>:usr1\n",
            "[1]<stdout>:usr1\n",
        ]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert "horovodrun: ended by SIGINT" in err
    assert not any(launching.is_alive(pid) for pid in pids)
    hosts.nobody_left(net)


def test_phases_are_shown_when_asked_for(net):
    result = hosts.run(net["alpha"], net, "-np", "2", "-H", "alpha:1,beta:1", "--verbose", "true")
    lines = [re.sub(r"[0-9]+\.[0-9]+ s", "T", line) for line in result.stderr.splitlines()]
    assert lines == [
        "horovodrun: T: 2 hosts, 1 of them other machines: beta",
        "horovodrun: T: agents 1/1: beta is here",
        "horovodrun: T: 2 ranks started: /usr/bin/true",
        "horovodrun: all ranks ended, T",
    ]


def test_a_rank_that_fails_far_away_is_named(net):
    script = "echo 'oh no' >&2; [ $HOROVOD_RANK = 2 ] && exit 3; exec sleep 1000"
    result = hosts.run(net["alpha"], net, "-np", "3", "-H", "alpha:1,beta:1,gamma:1", "--json", "sh", "-c", script)
    said = report(result)
    assert result.returncode == 3, result.stderr
    assert (said["first"]["rank"], said["first"]["host"], said["first"]["stderr"]) == (2, "gamma", ["oh no"])
    assert "first:      rank 2 on host gamma" in result.stderr
    hosts.nobody_left(net)


FUNCTION = """
import horovod

def square(factor):
    import os
    import horovod.numpy as hvd
    hvd.init()
    return factor * hvd.rank() ** 2, os.environ["HOROVOD_HOSTNAME"], float(hvd.allreduce(1.0, op=hvd.Sum, name="a"))

print(horovod.run(square, args=(10,), num_proc=3, hosts="alpha:1,beta:1,gamma:1"))
"""


def test_a_function_runs_on_all_hosts(net):
    # Its folder must be seen by all hosts, as it is here.
    command = net["alpha"].command(sys.executable, "-c", FUNCTION)
    result = subprocess.run(command, env=net.environment(), capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "[(0, 'alpha', 3.0), (10, 'beta', 3.0), (40, 'gamma', 3.0)]\n"
