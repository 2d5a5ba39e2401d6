# SPDX-License-Identifier: Apache-2.0
"""The config file and the calls to the registration service. Nothing here needs TensorFlow."""

from __future__ import annotations

import asyncio
import os
import pathlib
import queue
import socket
import subprocess
import sys
import threading

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

import pytest  # noqa: E402
from horovod.tensorflow.data import compute_worker, places, relay_process  # noqa: E402
from horovod.tensorflow.data import service as service_module  # noqa: E402
from horovod.tensorflow.data.client import ComputeClient  # noqa: E402
from horovod.tensorflow.data.compute_service import (  # noqa: E402
    ComputeService,
    TfDataServiceConfig,
    TimeoutException,
    compute_worker_fn,
)
from horovod.tensorflow.data.ledger import Ledger, batch_sizes  # noqa: E402
from horovod.tensorflow.data.registry import Registry  # noqa: E402
from horovod.tensorflow.data.relay import Relay  # noqa: E402
from horovod.tensorflow.data.watch import Watch  # noqa: E402
from horovod.tensorflow.data.wire import Channel, WireError  # noqa: E402

KEY = b"0123456789abcdef0123456789abcdef"


def config(**more) -> TfDataServiceConfig:
    fields = {
        "dispatchers": 2,
        "workers_per_dispatcher": 3,
        "dispatcher_side": "compute",
        "addresses": {"lo": [["127.0.0.1", 1]]},
        "key": KEY,
        "timeout": 7,
    }
    return TfDataServiceConfig(**{**fields, **more})


@pytest.fixture
def service():
    with ComputeService(2, 3, KEY) as made:
        yield made


@pytest.mark.row("d2", "d4")
def test_the_file_is_complete_secret_and_read_by_both_sides(tmp_path):
    file = tmp_path / "compute.json"
    config().write(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]
    found = TfDataServiceConfig.read(file)
    assert found == config()
    assert KEY.hex() not in repr(found)
    assert TfDataServiceConfig.from_dict({**found.to_dict(), "of a later release": 1}) == found


@pytest.mark.row("d2")
def test_the_file_appears_at_once(tmp_path):
    file, over = tmp_path / "compute.json", threading.Event()
    wanted = config()

    def write():
        while not over.is_set():
            wanted.write(file)

    writer = threading.Thread(target=write)
    wanted.write(file)
    writer.start()
    for _ in range(200):
        assert TfDataServiceConfig.read(file) == wanted
    over.set()
    writer.join()


@pytest.mark.row("d3")
def test_a_missing_file_is_an_error_or_waited_for(tmp_path, service):
    file = tmp_path / "compute.json"
    with pytest.raises(FileNotFoundError):
        TfDataServiceConfig.read(file)
    file.write_text("{")
    with pytest.raises(ValueError, match=r"compute.json is no config file of a data service"):
        TfDataServiceConfig.read(file)
    file.write_text('{"dispatchers": 1}')
    with pytest.raises(ValueError, match="it has no workers_per_dispatcher, dispatcher_side, addresses, key"):
        TfDataServiceConfig.read(file)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="start one, or pass wait_for_file_creation=True"):
        TfDataServiceConfig.read(file)
    found = []
    reader = threading.Thread(target=lambda: found.append(TfDataServiceConfig.read(file, wait_for_file_creation=True)))
    reader.start()
    config(addresses=service.addresses()).write(file)
    reader.join(60)
    assert found == [config(addresses=service.addresses())]


def test_a_wait_for_a_file_is_told(tmp_path, service, monkeypatch, capsys):
    monkeypatch.setattr("horovod.tensorflow.data.config._QUIET_S", 0)
    file = tmp_path / "compute.json"
    found = []
    reader = threading.Thread(target=lambda: found.append(TfDataServiceConfig.read(file, wait_for_file_creation=True)))
    reader.start()
    told = ""
    while "is not there; waiting for a compute job to write it, 0 s so far" not in told:
        told += capsys.readouterr().err
    config(addresses=service.addresses()).write(file)
    reader.join(60)
    assert found


@pytest.mark.row("d3")
def test_a_stale_file_is_waited_over_with_one_line(tmp_path, service):
    file = tmp_path / "compute.json"
    config().write(file)
    code = f"""
from horovod.tensorflow.data.compute_service import TfDataServiceConfig
print(TfDataServiceConfig.read({str(file)!r}, wait_for_file_creation=True).addresses)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as one:
        line = one.stderr.readline()
        assert "is of a compute job that does not answer" in line, line
        config(addresses=service.addresses()).write(file)
        output, rest = one.communicate(timeout=60)
    assert output.strip() == str(service.addresses())
    assert rest == ""


def test_another_release_of_tensorflow_is_refused(tmp_path):
    file = tmp_path / "compute.json"
    config().write(file)
    file.write_text(file.read_text().replace('"tensorflow": "2.', '"tensorflow": "1.'))
    with pytest.raises(RuntimeError, match=r"the compute job has TensorFlow 1\..* the same release on both sides"):
        TfDataServiceConfig.read(file)


@pytest.mark.row("d4")
@pytest.mark.parametrize(
    ("field", "value"), [("dispatcher_side", "both"), ("dispatchers", 0), ("workers_per_dispatcher", 1.5)]
)
def test_fields_that_cannot_be_are_refused(field, value):
    with pytest.raises(ValueError, match=f"{field}={value!r}"):
        config(**{field: value})


def test_only_who_knows_the_key_is_answered(service):
    assert ComputeClient(service.addresses(), KEY, 5).ping()
    stranger = ComputeClient(service.addresses(), KEY[::-1], 5)
    assert not stranger.ping()
    with pytest.raises(ConnectionError, match=r"cannot be reached .*closed the connection before it proved"):
        stranger.shutdown()
    assert not service.registry.is_shut_down()


def test_a_message_that_is_changed_or_sent_again_is_refused():
    for change in (lambda line: line.replace(b"1", b"2", 1), lambda line: line):
        ends = socket.socketpair()
        made: list[Channel] = []
        other = threading.Thread(target=lambda to=made, end=ends[0]: to.append(Channel(end, KEY, server=True)))
        other.start()
        client = Channel(ends[1], KEY, server=False)
        other.join()
        client.send({"call": 1})
        line = ends[0].recv(4096)
        ours, theirs = socket.socketpair()
        made[0]._connection = ours
        if change(line) == line:  # a second time
            theirs.sendall(line)
            assert made[0].receive() == {"call": 1}
        theirs.sendall(change(line))
        with pytest.raises(WireError, match="changed on its way"):
            made[0].receive()
        for one in (*ends, ours, theirs):
            one.close()


@pytest.mark.row("d26")
def test_what_cannot_be_registered_is_named(service):
    client = ComputeClient(service.addresses(), KEY, 5)
    with pytest.raises(IndexError, match="there is no dispatcher 2: this data service has 2, from 0 on"):
        client.register_dispatcher(2, "unix:/tmp/a")
    client.register_dispatcher(0, "unix:/tmp/a")
    client.register_dispatcher(0, "unix:/tmp/a")
    with pytest.raises(ValueError, match="dispatcher 0 is registered at unix:/tmp/a already, and now at unix:/tmp/b"):
        client.register_dispatcher(0, "unix:/tmp/b")
    assert client.wait_for_dispatcher_registration(0) == "unix:/tmp/a"
    with pytest.raises(TimeoutException, match=r"dispatcher 1 of 2 did not register within 0.1 s \(1 of 2 did\)"):
        client.wait_for_dispatcher_registration(1, timeout=0.1)
    for worker in (0, 0, 1):
        client.register_worker_for_dispatcher(0, worker, "unix:/tmp/w")
    with pytest.raises(TimeoutError, match=r"2 of 3 workers of dispatcher 0 registered within 0\.1 s"):
        client.wait_for_dispatcher_worker_registration(0, timeout=0.1)
    with pytest.raises(TimeoutException, match="0 of 3 workers of dispatcher 1"):
        client.wait_for_dispatcher_worker_registration(1, timeout=0)


def test_five_hundred_workers_register_at_once():
    with ComputeService(1, 512, KEY) as service:
        client = ComputeClient(service.addresses(), KEY, 60)
        threads = [
            threading.Thread(target=client.register_worker_for_dispatcher, args=(0, number, "unix:/tmp/w"))
            for number in range(512)
        ]
        for thread in threads:
            thread.start()
        assert len(client.wait_for_dispatcher_worker_registration(0, timeout=120)) == 512
        for thread in threads:
            thread.join()


def waits(call) -> threading.Thread:
    """Start a call that does not return yet."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    return thread


def test_a_rank_that_ends_has_left_its_own_run_alone():
    registry = Registry(1, 1)
    early, late = registry.join_run("a", 1, 2), registry.join_run("b", 0, 2)
    assert registry.join_run("b", 1, 2) == late != early
    registry.register_dispatcher(0, {"address": "unix:/tmp/a", "owner": "x"})
    registry.leave(0, late, 0)
    waiting = waits(lambda: registry.wait_left(0, late, [0, 1]))
    registry.leave_run(early, 1, lost=False)
    waiting.join(0.2)
    assert waiting.is_alive()
    registry.leave_run(late, 1, lost=True)
    waiting.join(60)
    assert not waiting.is_alive()
    assert registry.join_run("b", 1, 2) not in (early, late)  # nobody joins a run that has lost a rank


def test_who_has_left_a_dispatcher_waits_for_the_next_one():
    registry = Registry(1, 1)
    run = registry.join_run("a", 1, 2)
    server = {"address": "unix:/tmp/a", "owner": "x"}
    registry.register_dispatcher(0, server)
    assert registry.wait_for_dispatcher(0, 60, (run, 1)) == server
    registry.leave(0, run, 1)
    waiting = waits(lambda: registry.wait_for_dispatcher(0, 60, [run, 1]))  # a list, as JSON gives it
    registry.forget_dispatcher(0)
    registry.register_dispatcher(0, server)
    waiting.join(60)
    assert not waiting.is_alive()


def test_strangers_displace_each_other(service, monkeypatch):
    monkeypatch.setattr(service_module, "MOST_STRANGERS", 8)
    address = tuple(next(iter(service.addresses().values()))[0])
    crowd = [socket.create_connection(address, 60) for _ in range(100)]
    assert ComputeClient(service.addresses(), KEY, 5).ping()
    assert len(service._strangers) <= 8
    for one in crowd:
        one.close()


def test_a_data_port_that_cannot_be_opened_is_told(service):
    client = ComputeClient(service.addresses(), KEY, 5)
    asked = Relay(config(addresses=service.addresses()), pytest.fail)
    ended = threading.Event()

    def hear(event):
        if event["event"] == "open":
            asked.answer(client, "compute 0", "192.0.2.1")  # no address of this host
        else:
            ended.set()

    watch = Watch(client, hear, owner="compute 0", rank=0, training=False)
    watch.start()
    with pytest.raises(
        ConnectionError, match=r"compute 0 of the data service: no data port can be opened at 192\.0\.2"
    ):
        client.call("reach", owner="compute 0")
    client.shutdown()
    assert ended.wait(60)  # the thread that listens is still there
    watch.close()
    asked.stop()


def test_readers_learn_that_a_compute_rank_is_lost(service):
    client = ComputeClient(service.addresses(), KEY, 5)
    heard: queue.SimpleQueue[dict] = queue.SimpleQueue()
    reader = Watch(client, heard.put, owner="training 0", rank=0, size=1, training=True, hint="")
    reader.start()
    orderly, lost = (Watch(client, heard.put, owner=f"compute {one}", rank=one, training=False) for one in (0, 1))
    orderly.close()
    lost._channel.close()  # without a word, as the end of a killed process
    assert heard.get(timeout=60) == {"event": "compute lost", "owner": "compute 1"}
    reader.close()


def test_a_server_that_is_no_longer_reached_is_told_once_and_only_before_the_end(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(relay_process, "_PATIENCE_S", 0)

    async def lose_the_gate():
        gate = relay_process.Relay(KEY, str(tmp_path / "no folder"))
        where = await gate.gate("127.0.0.1", 0, encrypt=False)
        relay = relay_process.Relay(KEY, str(tmp_path))
        for name in ("w0", "w1"):
            await relay.carry(str(tmp_path / name), "127.0.0.1", where["port"], encrypt=False)
        gate._kept[0].close()
        await gate._kept[0].wait_closed()
        for name in ("w0", "w0", "w1"):
            if name == "w1":
                await relay.hush()
            reader, writer = await asyncio.open_unix_connection(tmp_path / name)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(lose_the_gate())
    said = capsys.readouterr().err
    assert said.count("hvd data service: w0 of the data service at 127.0.0.1 port") == 1, said
    assert "is not reached any more, and this process waits for it:" in said
    assert "w1" not in said


@pytest.mark.row("d13")
def test_a_size_that_is_no_multiple_of_dispatchers_is_refused():
    with pytest.raises(ValueError, match=r"dispatchers=3: the 4 ranks .* give --dispatchers 1 or 2 or 4"):
        compute_worker.check(3, "compute", "x.json", 4)
    with pytest.raises(ValueError, match="dispatchers=0"):
        compute_worker.check(0, "compute", "x.json", 4)
    with pytest.raises(ValueError, match="dispatcher_side='me'"):
        compute_worker.check(1, "me", "x.json", 4)
    with pytest.raises(ValueError, match="configfile=''"):
        compute_worker.check(1, "compute", "", 4)
    with pytest.raises(
        ValueError, match="the compute job has 5 ranks, and its config says 2 dispatchers with 3 workers"
    ):
        compute_worker_fn(config(), 0, 5)


@pytest.mark.row("d26")
def test_a_dispatcher_that_never_comes_ends_a_compute_rank(service):
    with pytest.raises(TimeoutException, match=r"dispatcher 0 of 2 did not .* start the training job"):
        compute_worker_fn(config(addresses=service.addresses(), dispatcher_side="training", timeout=0), 0, 6)
    assert not places.folder(KEY).exists()


def test_folders_of_killed_jobs_are_swept(monkeypatch, tmp_path):
    monkeypatch.setattr(places, "BASE", tmp_path)
    stale = tmp_path / "hvd-data-0123456789abcdef"
    stale.mkdir(mode=0o700)
    (stale / "w0").touch()
    os.utime(stale, (0, 0))
    with places.held(KEY) as own, places.held(KEY):
        assert list(tmp_path.iterdir()) == [own]
        os.utime(own, (0, 0))
        places.sweep()
        assert own.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_somebody_else_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(places, "BASE", tmp_path)
    places.folder(KEY).mkdir()
    places.folder(KEY).chmod(0o755)
    with pytest.raises(PermissionError, match="is not a folder of this user alone"), places.held(KEY):
        pass


def test_importing_a_compute_job_imports_no_tensorflow():
    code = """
import sys, horovod.tensorflow.data.compute_worker, horovod.tensorflow.data.compute_service, horovod.numpy
assert not [name for name in sys.modules if name.split(".")[0] in ("tensorflow", "keras", "pyspark")]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_shares_of_a_pass():
    import numpy as np

    for elements, batch, size in ((11, 4, 2), (9, 4, 2), (12, 4, 3), (1000, 16, 7), (3, 2, 2)):
        shares = [batch_sizes(elements, batch, rank, size) for rank in range(size)]
        assert sum(map(sum, shares)) == elements
        assert len({len(share) for share in shares}) == 1
        assert all(1 <= one <= batch for share in shares for one in share)
        assert [sum(share) for share in shares] == [len(range(rank, elements, size)) for rank in range(size)]
    with pytest.raises(ValueError, match="leave out 1 elements, or take larger batches"):
        batch_sizes(9, 1, 1, 2)
    ledger = Ledger(np.array([5, 2]))
    with pytest.raises(ValueError, match="the id 3 is none of this rank's pass"):
        ledger.arrived(np.array([3]))
    with pytest.raises(ValueError, match="the id 5 was not given out yet"):
        ledger.mark(np.array([5]))
    ledger.arrived(np.array([5, 2]))
    ledger.mark(np.array([5]))
    with pytest.raises(ValueError, match="an id is marked for the second time"):
        ledger.mark(np.array([2, 5]))


@pytest.mark.parametrize(
    ("counts", "line", "last"),
    [
        ([(0, 1), (40, 2)], "2 readers, 40 elements, ", "40 elements in all"),
        ([(0, 2)], "2 readers ", "ended"),  # their own `distribute` counts nothing
        ([(0, 0)], "", ""),
    ],
)
def test_the_line_of_a_compute_job(monkeypatch, capsys, counts, line, last):
    monkeypatch.setattr(service_module, "_REPORT_S", 0.01)
    ended = threading.Event()
    left = list(counts)

    class Service:
        def elements(self):
            if len(left) == 1:
                ended.set()
                return left[0]
            return left.pop(0)

    service_module.report(Service(), ended)
    shown = [one.removeprefix("data service: ") for one in capsys.readouterr().err.strip("\r\n").split("\r") if one]
    assert [one.rstrip() for one in shown[-1:]] == ([last] if last else [])
    assert (shown[-2] if shown else "").startswith(line)
