# SPDX-License-Identifier: Apache-2.0
"""
Readers on another host: in a network namespace, with a folder of sockets of their own.

The compute job runs in the test's process, at one end of a virtual cable.
"""

from __future__ import annotations

import ast
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import textwrap
import threading

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

import compute  # noqa: E402
import pytest  # noqa: E402
import spawn  # noqa: E402
from horovod.tensorflow.data import places, relay  # noqa: E402
from horovod.tensorflow.data.compute_service import ComputeService  # noqa: E402

NAME = f"hvdd{os.getpid()}"
# Networks of this process: others of the machine may run these tests at the same time.
FOUR = f"10.{64 + os.getpid() // 250 % 128}.{os.getpid() % 250}"
SIX = f"fd78:{os.getpid() >> 16:x}:{os.getpid() & 0xFFFF:x}:"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["ip", "netns", "list"], capture_output=True, check=False).returncode != 0,
    reason="needs root for network namespaces",
)

# A process becomes one of the other host; all that it starts is there, too.
MOVE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def done(result):
    assert result == 0, os.strerror(ctypes.get_errno())
done(libc.setns(os.open("/var/run/netns/" + sys.argv[2], os.O_RDONLY), 0x40000000))
done(libc.unshare(0x20000))
done(libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None))
os.makedirs(sys.argv[3], 0o700, exist_ok=True)
done(libc.mount(b"tmpfs", sys.argv[3].encode(), b"tmpfs", 0, b"mode=0700"))
"""
READ = """
marker = tf.data.Dataset.from_tensors("an element that nobody else reads").send_to_data_service(config, rank, size)
assert [one.numpy() for one in marker] == [b"an element that nobody else reads"]
data = numbers(tf.data.Dataset.range(100).send_to_data_service(config, rank, size))
big = tf.data.Dataset.range(8).map(lambda one: tf.fill([256, 1024], one))
big = sorted(int(one[255, 1023]) for one in big.send_to_data_service(config, rank, size))
print(data == list(range(100)) and big == list(range(8)))
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def cable(own: str, other: str):
    """A network namespace at the other end of a cable, for the block."""
    ip("netns", "add", NAME)
    try:
        ip("link", "add", NAME, "type", "veth", "peer", "name", "eth0", "netns", NAME)
        flags = ("nodad",) if ":" in own else ()
        ip("address", "add", own, "dev", NAME, *flags)
        ip("-n", NAME, "address", "add", other, "dev", "eth0", *flags)
        ip("link", "set", NAME, "up")
        for interface in ("eth0", "lo"):
            ip("-n", NAME, "link", "set", interface, "up")
        yield
    finally:
        subprocess.run(["ip", "link", "delete", NAME], capture_output=True, check=False)
        ip("netns", "delete", NAME)


@contextlib.contextmanager
def overheard():
    """What passes the cable during the block, as one text that is complete when the block is left."""
    frames: list[bytes] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as ear:
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUFFORCE if hasattr(socket, "SO_RCVBUFFORCE") else 33, 1 << 26)
        ear.bind((NAME, 0))
        yield frames
        ear.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                frames.append(ear.recv(1 << 16))


def ports_of(address: str) -> list[str]:
    found = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split()[3] for line in found if address in line.split()[3]]


def read(config, folder, text, env=None):
    command = compute.words(MOVE + textwrap.dedent(text), folder / "compute.json", NAME, places.folder(config.key))
    env = {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONWARNINGS": "ignore", **(env or {})}
    (result,) = spawn.spawn(command, 1, env=env, timeout=compute.PATIENCE_S, preloaded="tensorflow")
    return result


@pytest.mark.row("d10")
@pytest.mark.parametrize("encrypt", ["0", "1"])
@pytest.mark.parametrize(
    ("own", "other"), [(f"{FOUR}.1/24", f"{FOUR}.2/24"), (f"{SIX}:1/64", f"{SIX}:2/64")], ids=["IPv4", "IPv6"]
)
def test_a_reader_of_another_host(tmp_path, monkeypatch, own, other, encrypt):
    monkeypatch.setenv("HOROVOD_GLOO_IFACE", NAME)
    monkeypatch.setenv("HOROVOD_ENCRYPT", encrypt)
    address = own.split("/")[0]
    with cable(own, other), compute.job(2, folder=tmp_path) as config:
        config.compute_client().wait_for_dispatcher_worker_registration(0)
        assert len(ports_of(address)) == 1  # the registration service: nobody of another host reads yet
        with overheard() as frames:
            result = read(config, tmp_path, READ)
        assert result.output.strip().splitlines()[-1:] == ["True"], spawn.describe(result)
        assert any(b"an element that nobody else reads" in one for one in frames) == (encrypt == "0")
        assert 2 <= len(ports_of(address)) <= 3  # and a data port of each rank that a reader has asked for
        if encrypt == "0":
            refused = read(config, tmp_path, READ, env={"HOROVOD_ENCRYPT": "1"})
            assert "start the compute job with HOROVOD_ENCRYPT=1, too" in refused.output, spawn.describe(refused)


COMPUTE = """
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn
compute_worker_fn(TfDataServiceConfig.read(sys.argv[1]), 1, 2)
"""
# Rank 1 of the training job is on the other host.
BOTH = f"""
import horovod.tensorflow as hvd
hvd.init()
if rank == 1:
    exec({MOVE!r})
whole = tf.data.Dataset.range(100)
if config.dispatcher_side == "compute":
    own = numbers(whole.send_to_data_service(config, rank, size))
    shared = numbers(whole.send_to_data_service(config, rank, size, reuse_dataset=True))
    turns = whole.repeat().send_to_data_service(config, rank, size, reuse_dataset=True, round_robin=True)
    turns = [int(one) for one in turns.take(20)]
else:
    with tf_data_service(config, rank) as address:
        own = numbers(whole.apply(distribute("distributed_epoch", address)))
    shared, turns = own[rank::2], own[:20]  # each rank has a dispatcher of its own
print((own, shared, len(turns)))
hvd.allreduce(tf.zeros([1]), name="all have read")
"""


@pytest.mark.row("d10", "d12", "d15", "d16", "d18")
@pytest.mark.parametrize(
    ("own", "other", "side", "dispatchers"),
    [
        (f"{FOUR}.1/24", f"{FOUR}.2/24", "compute", 1),
        (f"{SIX}:1/64", f"{SIX}:2/64", "training", 2),
        (f"{FOUR}.1/24", f"{FOUR}.2/24", "training", 1),
    ],
    ids=["compute", "training 2 IPv6", "training"],
)
def test_both_jobs_have_ranks_on_both_hosts(tmp_path, monkeypatch, own, other, side, dispatchers):
    monkeypatch.setenv("HOROVOD_GLOO_IFACE", NAME)
    with cable(own, other), compute.job(2, dispatchers, side, tmp_path, away=1) as config:
        away = [sys.executable, "-c", MOVE + COMPUTE, tmp_path / "compute.json", NAME, places.folder(config.key)]
        with subprocess.Popen(away) as rank:
            command = compute.words(BOTH, tmp_path / "compute.json", NAME, places.folder(config.key))
            env = {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONWARNINGS": "ignore"}
            results = spawn.spawn(command, 2, env=env, timeout=compute.PATIENCE_S, preloaded="tensorflow")
            there = ["ip", "netns", "exec", NAME, "ss", "-Hltn"]
            listeners = subprocess.run(there, capture_output=True, text=True, check=True).stdout.splitlines()
            config.compute_client().shutdown()
            assert rank.wait(compute.PATIENCE_S) == 0
    assert all(one.returncode == 0 for one in results), "\n".join(map(spawn.describe, results))
    (one, shared, turns), (two, rest, more) = (ast.literal_eval(each.output.splitlines()[-1]) for each in results)
    assert one == two == sorted(shared + rest) == list(range(100))
    assert turns == more == 20
    assert all(line.split()[3].strip("[").startswith(other.split("/")[0]) for line in listeners), listeners


def test_a_host_that_vanishes_is_noticed_by_both_sides(tmp_path, monkeypatch):
    monkeypatch.setenv("HOROVOD_GLOO_IFACE", NAME)
    services: list[compute.ComputeService] = []

    def serve(*words):
        services.append(ComputeService(*words))
        return services[0]

    monkeypatch.setattr(compute, "ComputeService", serve)
    text = """
    next(iter(tf.data.Dataset.range(10).send_to_data_service(config, 0, 1)))
    open(sys.argv[1] + ".reads", "w").close()
    time.sleep(600)  # nothing is sent: the watch alone is there
    """
    with cable(f"{FOUR}.1/24", f"{FOUR}.2/24"), compute.job(1, folder=tmp_path) as config:

        def cut():
            compute.until((tmp_path / "compute.json.reads").exists, "reading")
            assert services[0].elements()[1] == 1
            ip("link", "set", NAME, "down")
            compute.until(lambda: services[0].elements()[1] == 0, "the end of the reader's watch")

        thread = threading.Thread(target=cut)
        thread.start()
        result = read(config, tmp_path, text)
        thread.join()
    assert result.returncode == 3, spawn.describe(result)
    assert "the compute job ended before training did (the data service at" in result.output


@pytest.mark.row("d10")
def test_a_reader_that_does_not_reach_the_data_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("HOROVOD_GLOO_IFACE", NAME)
    real = relay.Relay.open_gate
    monkeypatch.setattr(relay.Relay, "open_gate", lambda self, host: {**real(self, host), "host": f"{FOUR}.99"})
    with cable(f"{FOUR}.1/24", f"{FOUR}.2/24"), compute.job(1, folder=tmp_path) as config:
        result = read(config, tmp_path, READ)
    assert result.returncode == 1
    assert f"d0 of the data service (compute 0) cannot be reached from this host at {FOUR}.99 port" in result.output
    assert "HOROVOD_GLOO_IFACE must name the interface that both hosts share" in result.output


def test_a_data_port_admits_nobody_without_the_key(tmp_path, monkeypatch):
    from horovod.tensorflow.data.relay import Relay

    with compute.job(1, folder=tmp_path) as config:
        config.compute_client().wait_for_dispatcher_worker_registration(0)
        gate = Relay(config, pytest.fail)
        found = gate.open_gate("127.0.0.1")
        stranger = socket.create_connection((found["host"], found["port"]), 10)
        assert len(stranger.recv(32)) == 32
        stranger.sendall(bytes(64) + bytes([2]) + b"d0")
        assert stranger.recv(1) == b""
        stranger.close()
        gate.stop()
