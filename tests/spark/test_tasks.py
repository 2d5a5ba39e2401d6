# SPDX-License-Identifier: Apache-2.0
"""Driver and tasks without Spark: two hosts, strangers at the door, changed messages, and the loss of the driver."""

import json
import os
import select
import socket
import subprocess
import sys
import threading
import time

import cloudpickle
import hosts
import launching
import pytest
from horovod.spark import channel
from horovod.spark.coordinator import Coordinator
from wardens import kill, rank_processes

# One task; the token comes through stdin.
TASK = """
import sys
from horovod.spark.supervisor import supervise
address, port, partition = sys.argv[1:]
supervise(int(partition), (address, int(port)), bytes.fromhex(sys.stdin.readline()), None, 1)
"""
# One run; writes its port and token as a line.
DRIVER = """
import json, sys, time, cloudpickle
from horovod.spark.coordinator import Coordinator
address, size, job = sys.argv[1:]
show = lambda rank, stream, line: print(f"[{rank}]<{stream}>:{line}", file=sys.stderr, flush=True)
with Coordinator(int(size), bytes.fromhex(job), address, {}, show) as coordinator:
    print(json.dumps([coordinator.port, coordinator.token.hex()]), flush=True)
    outcome = coordinator.run(time.monotonic() + 100, "only {} tasks came".format)
    print(json.dumps(outcome.unpack()), flush=True)
"""


cloudpickle.register_pickle_by_value(sys.modules[__name__])


def start(prefix, program, *words, **options):
    command = [*prefix, sys.executable, "-c", program, *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


def start_task(prefix, address, port, token, partition, **options):
    task = start(prefix, TASK, address, port, partition, **options)
    task.stdin.write(token + "\n")
    task.stdin.close()
    return task


def pickled(function, *args):
    return cloudpickle.dumps((function, args, {}))


def describe():
    import os

    import horovod.numpy as hvd
    import numpy as np

    hvd.init()
    total = hvd.allreduce(np.full(2, hvd.rank() + 1.0), op=hvd.Sum).tolist()
    with open(os.environ["HOROVOD_TOKEN_FILE"]) as file:
        token = file.read()
    return hvd.rank(), hvd.local_rank(), hvd.cross_rank(), hvd.cross_size(), total, token


@pytest.mark.skipif(bool(hosts.why_not()), reason=hosts.why_not())
@pytest.mark.parametrize("family", [4, 6])
def test_ranks_on_two_hosts_share_a_token_that_nobody_sent(tmp_path, family):
    with hosts.network(tmp_path, {"a": "eth0", "b": "net0"}, family) as net:
        driver = start(net["b"].command(), DRIVER, net["b"].address, 3, pickled(describe).hex())
        port, token = json.loads(driver.stdout.readline())
        # Partition 0 is on the host that the driver is not on.
        tasks = [start_task(net[host].command(), net["b"].address, port, token, i) for i, host in enumerate("aba")]
        results = json.loads(driver.stdout.readline())
        assert [task.wait() for task in tasks] == [0, 0, 0]
        assert driver.wait() == 0
        launching.wait_until(lambda: not rank_processes())
    assert [result[:4] for result in results] == [[0, 0, 0, 2], [1, 1, 0, 1], [2, 0, 1, 2]]
    assert {tuple(result[4]) for result in results} == {(6.0, 6.0)}
    assert len({result[5] for result in results}) == 1
    assert results[0][5] != token


def test_hosts_by_name_on_one_machine_are_several():
    driver = start([], DRIVER, "127.0.0.1", 2, pickled(describe).hex())
    port, token = json.loads(driver.stdout.readline())
    for partition, name in enumerate("ab"):
        start_task([], "127.0.0.1", port, token, partition, env={**os.environ, "HOROVOD_HOSTNAME": name})
    results = json.loads(driver.stdout.readline())
    assert driver.wait() == 0
    assert [result[1:5] for result in results] == [[0, 0, 2, [3.0, 3.0]], [0, 1, 2, [3.0, 3.0]]]


def test_the_ranks_end_with_the_driver(tmp_path):
    def wait(folder):
        import os
        import time

        open(os.path.join(folder, os.environ["HOROVOD_RANK"]), "w").close()
        time.sleep(1000)

    driver = start([], DRIVER, "127.0.0.1", 2, pickled(wait, str(tmp_path)).hex())
    port, token = json.loads(driver.stdout.readline())
    tasks = [start_task([], "127.0.0.1", port, token, partition) for partition in range(2)]
    launching.wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    kill(driver.pid)
    assert [task.wait() for task in tasks] == [0, 0]
    assert not rank_processes()
    driver.wait()


def test_what_a_rank_started_ends_with_it_also_if_its_task_is_killed(tmp_path):
    def fork(file):
        import subprocess
        import time

        other = subprocess.Popen(["sleep", "1000"])
        with open(file + ".part", "w") as out:
            out.write(str(other.pid))
        __import__("os").rename(file + ".part", file)
        time.sleep(1000)

    file = tmp_path / "pid"
    driver = start([], DRIVER, "127.0.0.1", 1, pickled(fork, str(file)).hex(), stderr=subprocess.PIPE)
    port, token = json.loads(driver.stdout.readline())
    task = start_task([], "127.0.0.1", port, token, 0)
    launching.wait_until(file.exists)
    kill(task.pid)
    assert "lost the Spark task of rank 0 (host " in driver.communicate()[1]
    launching.wait_until(lambda: not rank_processes() and not launching.is_alive(int(file.read_text())))
    task.wait()


class Driver:
    """A coordinator of one rank, in this process, that waits for its task."""

    def __enter__(self):
        self.coordinator = Coordinator(1, pickled(os.getpid), "127.0.0.1", {}, print)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def _run(self):
        try:
            self.result = self.coordinator.run(time.monotonic() + 100, "only {} tasks came".format)
        except Exception as error:
            self.result = error

    def __exit__(self, *unused):
        self.coordinator.spark_ended("the test is over")
        self._thread.join()
        self.coordinator.__exit__()

    @property
    def address(self):
        return "127.0.0.1", self.coordinator.port


def received(connection):
    count = 0
    try:
        while data := connection.recv(4096):
            count += len(data)
    except ConnectionResetError:
        pass
    return count


def test_a_stranger_is_dropped_and_learns_nothing():
    with Driver() as driver:
        with pytest.raises(channel.RefusedError, match="the driver closed the connection"):
            channel.connect(driver.address, b"another token", 10)
        with socket.create_connection(driver.address) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n" * 10)
            assert received(stranger) in (0, channel.NONCE)
        # Strangers that say nothing displace each other.
        crowd = [socket.create_connection(driver.address) for _ in range(300)]
        task = channel.connect(driver.address, driver.coordinator.token, 10)
        for one in [*crowd, task]:
            one.close()


def test_what_listens_in_the_drivers_place_is_not_believed():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pretend():
            connection, _ = server.accept()
            with connection:
                connection.sendall(bytes(channel.NONCE))
                connection.recv(64)
                connection.sendall(bytes(channel.MAC))

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(channel.RefusedError, match="is not the driver of this run"):
            channel.connect(server.getsockname()[:2], b"token", 10)
        thread.join()


def pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other = server.accept()[0]
    return one, channel.Channel(other, b"to one", b"to other")


class Recorder(channel.Channel):
    """Sends into a list."""

    def __init__(self):
        self.sent = b""
        self._keys = b"to other", b"to one"
        self._sent = self.backlog = 0
        self._out = self

    def extend(self, parts):
        self.sent += b"".join(parts)


@pytest.mark.parametrize("change", ["bit", "again", "order", "length"])
def test_a_changed_message_is_refused(change):
    writer = Recorder()
    writer.put({"hello": 1}, b"body")
    first, writer.sent = writer.sent, b""
    writer.put({"hello": 2}, b"more")
    second = writer.sent
    data = {
        "bit": first[:-1] + bytes([first[-1] ^ 1]),
        "again": first + first,
        "order": second + first,
        "length": b"\xff" * 12 + first[12:],
    }[change]
    raw, reader = pair()
    with raw, reader.socket:
        raw.sendall(data)
        select.select([reader], [], [])
        with pytest.raises(channel.RefusedError):
            reader.take()
    raw, reader = pair()
    with raw, reader.socket:
        raw.sendall(first + second)
        select.select([reader], [], [])
        assert reader.take() == [({"hello": 1}, b"body"), ({"hello": 2}, b"more")]


def test_a_second_copy_of_a_task_gets_no_rank():
    with Driver() as driver:
        made = [channel.connect(driver.address, driver.coordinator.token, 10) for _ in range(2)]
        about = {"machine": "m", "host": "h", "name": "n", "pid": 1, "at": ["127.0.0.1", 1]}
        for one in made:
            one.put({"hello": 0, **about})
            one.flush()
        launching.wait_until(lambda: driver.coordinator.started)
        ends = []

        def ended(one):
            try:
                one.take()
            except EOFError:
                ends.append(one)
            return bool(ends)

        launching.wait_until(lambda: any(ended(one) for one in made))
        assert len(ends) == 1
        for one in made:
            one.close()
