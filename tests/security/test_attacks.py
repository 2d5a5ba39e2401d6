# SPDX-License-Identifier: Apache-2.0
"""
Attacks on a live job of two hosts, by a stranger beside them and by the path between them. The job ends right, or with
an error where somebody on the path changes what must not be changed.

The hosts are networks of their own, and every packet between them goes through a relay; see horovod/chaos/path.py.
"""

import concurrent.futures
import contextlib
import pathlib
import re
import select
import socket
import subprocess
import sys

import launching
import pytest
import spawn
from horovod.chaos import path

STRANGER = pathlib.Path(__file__).with_name("stranger.py")
PORT = 29500
RANKS = 4
SO_RCVBUFFORCE = 33

# Works until a file appears, then says what it found.
WORK = """
import os, sys, numpy as np, horovod.numpy as hvd
rank, go = int(os.environ["HOROVOD_RANK"]), sys.argv[1]
try:
    hvd.init()
    print("UP", flush=True)
    step, right, last = 0, True, False
    while not last:
        step += 1
        small = hvd.allreduce(np.full(3, rank + step), op=hvd.Sum, name="small")
        large = hvd.allreduce(np.full(50000, float(rank + step)), op=hvd.Sum, name="large")
        right &= bool((small == 6 + 4 * step).all() and (large == 6 + 4 * step).all())
        last = hvd.broadcast_object(step >= 20 and os.path.exists(go), name="last")
    print("RIGHT" if right else "WRONG")
except hvd.HorovodInternalError as error:
    print("ERROR", error)
"""


@pytest.fixture(scope="module")
def net():
    """Two hosts of a job, and a stranger's."""
    try:
        made = path.Path(3)
    except OSError as error:
        pytest.skip(f"there can be no networks of our own: {error}")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def unchanged(net):
    yield
    net.reset()


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text("5a" * 32)
    return file


def start(net, host, *words, **options):
    command = ["nsenter", f"--net={net.network(host)}", *spawn.DIES_WITH_US, *map(str, words)]
    return subprocess.Popen(command, **options)


class Job:
    """Four ranks, two on each host. The last one is not there yet, so the others wait with open ports."""

    def __init__(self, net, token, env):
        self.net, self.token, self.env = net, token, env
        self.go = token.with_name("go")
        self.go.unlink(missing_ok=True)
        self.files = [token.with_name(f"output{rank}") for rank in range(RANKS)]
        self.ranks = [self._start(rank) for rank in range(RANKS - 1)]
        self.hosts = [str(self.ranks[rank].pid) for rank in (0, 2)]  # a process of each

    def _start(self, rank):
        env = {
            "HOROVOD_RANK": str(rank),
            "HOROVOD_SIZE": str(RANKS),
            "HOROVOD_HOSTNAME": f"host{rank // 2}",
            "HOROVOD_RENDEZVOUS_ADDR": f"{self.net.addresses[0]}:{PORT}",
            "HOROVOD_TOKEN_FILE": str(self.token),
            "HOROVOD_START_TIMEOUT": "60",
            **self.env,
        }
        words = (sys.executable, "-c", WORK, self.go)
        with self.files[rank].open("w") as file:
            both = {"stdout": file, "stderr": subprocess.STDOUT}
            return start(self.net, rank // 2, *words, env=launching.clean_environment(**env), **both)

    def complete(self):
        """Start the last rank; wait until all have begun to work, or have failed."""
        self.ranks.append(self._start(RANKS - 1))
        launching.wait_until(lambda: all(re.search("UP|ERROR|Error", text) for text in self.outputs()))

    def outputs(self):
        return [file.read_text() if file.exists() else "" for file in self.files]

    def end(self):
        """Let it end; return what each rank printed."""
        self.go.touch()
        for process in self.ranks:
            process.wait(timeout=60)
        return self.outputs()

    def ends_right(self):
        texts = self.end()
        assert all(text.splitlines()[-1] == "RIGHT" for text in texts), "\n---\n".join(texts)

    def ends_with_an_error(self):
        texts = self.end()
        assert not any("RIGHT" in text or "WRONG" in text for text in texts), "\n---\n".join(texts)
        return texts


@contextlib.contextmanager
def job(net, token, **env):
    made = Job(net, token, env)
    try:
        yield made
    finally:
        for process in made.ranks:
            process.kill()
            process.wait()


@contextlib.contextmanager
def stranger(net, kind, pids, file="-"):
    """Flood the ports of hosts from a while before the block to its end."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with start(net, 2, sys.executable, STRANGER, kind, file, *pids, **pipes) as process:
        try:
            assert process.stdout.readline() == "many\n"
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("kind", ["idle", "half", "syn"])
def test_a_flood_from_the_start_to_the_end(kind, net, token):
    net.words[path.DELAY_US] = 20000  # a stranger is nearer than the other host
    with job(net, token) as made, stranger(net, kind, made.hosts):
        made.complete()
        made.ends_right()


@pytest.mark.parametrize("encrypt", ["0", "1"])
def test_what_an_earlier_run_said_is_of_no_use(encrypt, net, token):
    recording = token.with_name("recording")
    env = {"HOROVOD_ENCRYPT": encrypt}
    with recorded(net, recording), job(net, token, **env) as made:
        made.complete()
        made.ends_right()
    said = recording.read_text().split()
    assert any("4856444804" in line[:20] or line.startswith("1603") for line in said)
    # The next run has the same token, ports and names.
    with job(net, token, **env) as made, stranger(net, "replay", made.hosts, recording):
        made.complete()
        made.ends_right()


@contextlib.contextmanager
def recorded(net, file):
    """Write what clients say to ports of the first host into a file, a line for each connection."""
    with net.inside(0), socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as sniffer:
        sniffer.setblocking(False)
        sniffer.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)  # all is read after the block
        yield
        parts = {}
        while select.select([sniffer], [], [], 0)[0]:
            packet = sniffer.recv(65536)
            begin = (packet[0] & 15) * 4
            data = packet[begin + (packet[begin + 12] >> 4) * 4 :]
            ends = packet[12:20] + packet[begin : begin + 4]
            if packet[9] == socket.IPPROTO_TCP and packet[12:16] != socket.inet_aton(net.addresses[0]) and data:
                parts.setdefault(ends, {})[packet[begin + 4 : begin + 8]] = data
    # The first bytes of a stream open its connection.
    streams = [b"".join(part for _, part in sorted(pieces.items()))[:4096] for pieces in parts.values()]
    file.write_text("\n".join(stream.hex() for stream in streams))


SUM = """
import numpy as np, horovod.numpy as hvd
hvd.init()
print("SUM", hvd.allreduce(np.ones(1), op=hvd.Sum)[0])
"""


@contextlib.contextmanager
def launched(net, token):
    """A job of a rank on each host; of the second host an agent is expected, which is not there yet."""
    first, second = net.addresses[:2]
    driver = f"{first}:{PORT}"
    flags = ["-np", "2", "-H", f"{first},{second}", "--no-ssh", "--token-file", token, "--driver-address", driver]
    environment = launching.clean_environment()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    with start(net, 0, launching.HOROVODRUN, *flags, sys.executable, "-c", SUM, **pipes) as process:
        try:
            process.stderr.readline()  # which agents it waits for
            yield process, driver
        finally:
            process.kill()


@contextlib.contextmanager
def agent(net, token, *drivers):
    """Start the agent of the second host. It dials the first driver, and tells that it can reach the others."""
    words = [word for driver in drivers for word in ("--driver", driver)]
    words += ["--host", net.addresses[1], "--token-file", token]
    with start(net, 1, launching.HOROVODRUN, "agent", *words, env=launching.clean_environment()) as process:
        try:
            yield process
        finally:
            process.kill()


def ends_well(process, other):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.count("SUM 2.0") == 2, out
    assert other.wait(timeout=30) == 0


def test_a_flood_while_an_agent_comes(net, token):
    net.words[path.DELAY_US] = 60000
    with (
        launched(net, token) as (process, driver),
        stranger(net, "idle", [str(process.pid)]),
        agent(net, token, driver) as other,
    ):
        ends_well(process, other)


def relay(listener, connect, cut):
    """Carry connections to where `connect` leads. The first `cut` of them end when their client has been greeted."""
    while True:
        try:
            near = listener.accept()[0]
        except OSError:
            return cut
        with near, connect() as far:
            said = 0
            while True:
                for end in select.select([near, far], [], [])[0]:
                    said += end is near
                    data = b"" if cut > 0 and said == 2 else end.recv(65536)
                    if data:
                        (far if end is near else near).sendall(data)
                    else:
                        said = -1
                        break
                if said < 0:
                    break
        cut -= 1


def test_an_agent_that_was_turned_away_comes_again(net, token):
    # An agent that is displaced by strangers has proved itself, and its connection ends without a word.
    with launched(net, token) as (process, driver):
        with net.inside(1):
            listener = socket.create_server(("127.0.0.1", 0))

        def connect():
            with net.inside(1):
                return socket.create_connection((net.addresses[0], PORT))

        with listener, concurrent.futures.ThreadPoolExecutor() as pool:
            left = pool.submit(relay, listener, connect, 2)
            with agent(net, token, f"127.0.0.1:{listener.getsockname()[1]}", driver) as other:
                ends_well(process, other)
            listener.shutdown(socket.SHUT_RDWR)
            assert left.result(timeout=30) < 0, "two connections were cut, and one was not"


def test_a_job_without_authentication_warns_once(net, token):
    with job(net, token, HOROVOD_INSECURE="1", HOROVOD_TOKEN_FILE="") as made:
        made.complete()
        made.ends_right()
        warnings = [text.count("can join this job and run code in it") for text in made.outputs()]
    assert warnings == [1, 0, 0, 0]


def test_a_lossy_slow_path_that_swaps_packets(net, token):
    net.words[path.LOSS] = 200  # of 10000
    net.words[path.DELAY_US] = 3000
    with job(net, token) as made:
        made.complete()
        made.ends_right()
    assert net.words[path.PASSED] > 100


def test_tls_is_not_negotiated_down(net, token):
    net.words[path.CHANGE] = path.HELLOS
    with job(net, token, HOROVOD_START_TIMEOUT="3") as made:
        launching.wait_until(lambda: net.words[path.CHANGED] >= 1)
        net.reset()
        made.complete()
        texts = made.ends_with_an_error()
    assert "the other side has another job token (HOROVOD_TOKEN_FILE), or none" in texts[2]


@pytest.mark.parametrize(("what", "encrypt"), [(path.CONTROL, "0"), (path.ANY, "1")])
def test_what_is_changed_on_its_way_is_not_used(what, encrypt, net, token):
    with job(net, token, HOROVOD_ENCRYPT=encrypt) as made:
        made.complete()
        net.words[path.CHANGE] = what
        texts = made.ends_with_an_error()
        # TLS refuses a changed record, for its code or, if its head was hit, for its type or version.
        assert any(re.search("changed on its way|the TLS connection failed", text) for text in texts), texts
