# SPDX-License-Identifier: Apache-2.0
"""Counters: exact after a known sequence of operations, as a dict and as text that Prometheus reads."""

import re
import threading
import time

import horovod.numpy as hvd
import numpy as np
import pytest
from ranks import on_ranks

KINDS = {
    "allreduce",
    "allgather",
    "broadcast",
    "barrier",
    "alltoall",
    "reducescatter",
    "join",
    "adasum",
    "process_set",
}

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
SAMPLE = re.compile(rf"({NAME})\{{({LABEL}(?:,{LABEL})*)\}} (-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)")


def parse(text):
    """Read Prometheus' text format, strictly: {metric: (type, {labels: value})}."""
    assert text.endswith("\n")
    metrics = {}
    current = None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in metrics, f"{current} comes twice"
            assert len(line.split(" ", 3)[3]) > 0
            metrics[current] = (None, {})
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current
            assert kind in ("counter", "gauge")
            assert (kind == "counter") == name.endswith("_total")
            assert metrics[name] == (None, {}), "TYPE comes once, before the samples"
            metrics[name] = (kind, {})
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            assert found[1] == current, "samples follow their metric"
            labels = re.findall(LABEL, found[2])
            assert len({name for name, _ in labels}) == len(labels)
            samples = metrics[current][1]
            assert frozenset(labels) not in samples, "no sample twice"
            samples[frozenset(labels)] = float(found[7])
    assert all(kind is not None for kind, _ in metrics.values())
    return metrics


def value(metrics, name, **labels):
    wanted = frozenset({"rank": str(hvd.rank()), **labels}.items())
    return metrics[f"horovod_{name}"][1][wanted]


@on_ranks(1, 2, 3)
def test_numbers_are_exact():
    size, rank = hvd.size(), hvd.rank()
    for _ in range(10):
        hvd.allreduce(np.ones(1024, np.float32), name="gradient")
    hvd.allgather(np.ones((rank + 1, 3)), name="rows")
    hvd.broadcast(np.ones(5, np.int8), root_rank=0, name="weights")
    hvd.alltoall(np.ones(2 * size, np.float32), name="shuffle")
    hvd.reducescatter(np.ones((size, 2), np.float32), name="scatter")
    hvd.allreduce(np.ones(4, np.float32), op=hvd.Adasum, name="adasum")
    hvd.barrier()
    hvd.join()
    now = hvd.counters()

    assert (now["rank"], now["size"], now["generation"]) == (rank, size, 0)
    assert now["uptime_seconds"] > 0
    done = {kind: (count["completed"], count["bytes"]) for kind, count in now["operations"].items()}
    assert done == {
        "allreduce": (10, 40960),
        "allgather": (1, 24 * (rank + 1)),
        "broadcast": (1, 5),
        "barrier": (1, 0),
        "alltoall": (1, 8 * size),
        "reducescatter": (1, 8 * size),
        "join": (1, 0),
        "adasum": (1, 16),
        "process_set": (0, 0),
    }
    assert all(count["failed"] == count["timed_out"] == 0 for count in now["operations"].values())
    assert all(count["wait_seconds"] >= 0 <= count["run_seconds"] for count in now["operations"].values())
    assert now["operations"]["allreduce"]["run_seconds"] > 0
    assert now["cache"] == ({"hits": 9, "misses": 8} if size > 1 else {"hits": 0, "misses": 0})
    assert sorted(now["peers"]) == list(range(size))
    assert now["peers"][rank]["sent_bytes"] == {}
    assert now["stalls"] == 0


@on_ranks(2, 3)
def test_bytes_between_two_ranks_are_the_payload():
    before = hvd.counters()["peers"]
    for _ in range(10):
        hvd.allreduce(np.ones(1024, np.float32), name="gradient")
    after = hvd.counters()["peers"]
    for peer in range(hvd.size()):
        if peer != hvd.rank():
            for way in "sent_bytes", "received_bytes":
                assert after[peer][way]["shm"] - before[peer][way]["shm"] == 40960
                # The lowest rank leads the agreement on what is new.
                assert after[peer][way]["ring"] > 0 or 0 not in (peer, hvd.rank())
                assert "tcp" not in after[peer][way]


@on_ranks(2, env={"HOROVOD_DISABLE_SHM": "1", "HOROVOD_LOG_LEVEL": "error"})
def test_bytes_by_tcp():
    before = hvd.counters()["peers"]
    hvd.allreduce(np.ones(100000, np.float32), name="gradient")
    after = hvd.counters()["peers"]
    peer = 1 - hvd.rank()
    assert list(after[peer]["sent_bytes"]) == ["tcp"]
    for way in "sent_bytes", "received_bytes":
        moved = after[peer][way]["tcp"] - before[peer][way]["tcp"]
        assert 400000 <= moved <= 410000, "the payload and a few headers"


@on_ranks(1, 2)
def test_text_is_what_prometheus_reads_and_says_the_same():
    for _ in range(3):
        hvd.allreduce(np.ones(4), name="x")
    now = hvd.counters()
    metrics = parse(hvd.counters_text())
    assert {dict(labels)["kind"] for labels in metrics["horovod_operations_total"][1]} == KINDS
    assert value(metrics, "operations_total", kind="allreduce") == 3
    assert value(metrics, "operation_bytes_total", kind="allreduce") == 96
    assert value(metrics, "operation_wait_seconds_total", kind="allreduce") == pytest.approx(
        now["operations"]["allreduce"]["wait_seconds"], rel=0.01
    )
    assert value(metrics, "cache_hits_total") == now["cache"]["hits"]
    assert value(metrics, "fusion_threshold_bytes") == now["fusion"]["threshold_bytes"]
    assert value(metrics, "generation") == 0
    for peer in range(hvd.size()):
        assert value(metrics, "peer_last_total", peer=str(peer)) == now["peers"][peer]["last"]
        for transport, sent in now["peers"][peer]["sent_bytes"].items():
            if transport == "shm":
                assert value(metrics, "peer_sent_bytes_total", peer=str(peer), transport="shm") == sent


GIVEN = {"HOROVOD_CHUNK_BYTES": "131072", "HOROVOD_EAGER_LIMIT": "4096", "HOROVOD_SPIN_US": "50"}


@on_ranks(1, 2, env=GIVEN)
def test_values_in_force():
    now = hvd.counters()["tuning"]
    assert now == {"chunk_percent": 100, "chunk_bytes": 131072, "eager_limit_bytes": 4096, "spin_us": 50}
    metrics = parse(hvd.counters_text())
    assert value(metrics, "chunk_percent") == 100
    assert value(metrics, "chunk_bytes") == 131072
    assert value(metrics, "eager_limit_bytes") == 4096
    assert value(metrics, "spin_seconds") == pytest.approx(50e-6)


@on_ranks(2)
def test_errors_are_counted_and_leave_the_counters():
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allreduce(np.ones(2 + hvd.rank()), name="differs")
    with pytest.raises(ValueError):
        hvd.allreduce(np.ones(2), op=77, name="refused here")
    hvd.allreduce(np.ones(2), name="agrees")
    done = hvd.counters()["operations"]["allreduce"]
    assert (done["completed"], done["failed"], done["bytes"]) == (1, 1, 16)


@on_ranks(2, env={"HOROVOD_STALL_CHECK_TIME_SECONDS": "1"})
def test_stall_reports_are_counted():
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(np.ones(2), name="late")
        limit = time.monotonic() + 60
        while hvd.counters()["stalls"] == 0 and time.monotonic() < limit:
            time.sleep(0.05)
        assert hvd.counters()["stalls"] > 0
        hvd.barrier()
        hvd.synchronize(handle)
    else:
        hvd.barrier()
        hvd.allreduce(np.ones(2), name="late")


@on_ranks(2)
def test_threads_read_while_others_work():
    stop = threading.Event()
    failures = []

    def read():
        last = 0
        while not stop.is_set():
            now = hvd.counters()["operations"]["allreduce"]["completed"]
            if now < last:
                failures.append((last, now))
            last = now
            parse(hvd.counters_text())

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(300):
        hvd.allreduce(np.ones(8), name="x")
    stop.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert hvd.counters()["operations"]["allreduce"]["completed"] == 300


def test_counters_begin_at_zero_with_init_and_end_with_shutdown():
    assert not hvd.is_initialized()
    for read in hvd.counters, hvd.counters_text:
        with pytest.raises(ValueError, match="has not been initialized"):
            read()
    for _ in range(2):
        hvd.init()
        assert hvd.counters()["operations"]["allreduce"]["completed"] == 0
        hvd.allreduce(np.ones(3))
        assert hvd.counters()["operations"]["allreduce"]["completed"] == 1
        hvd.shutdown()
    with pytest.raises(ValueError, match="has not been initialized"):
        hvd.counters()
