# SPDX-License-Identifier: Apache-2.0
"""What the engine writes about itself while ranks work, end and die: timelines and flight recorders."""

import concurrent.futures
import json
import subprocess
import sys
import time

import horovod.numpy as hvd
import pytest
import spawn

WORK = """
import os, signal, sys, time
import numpy as np, horovod.numpy as hvd
hvd.init()
for i in range(20):
    hvd.allreduce(np.ones(1000), name="weights")
    hvd.allgather(np.ones((hvd.rank() + 1, 2)), name="rows")
if sys.argv[1] == "killed":
    while '"ALLGATHER"' not in open("t.1.json" if hvd.rank() else "t.json").read():  # written a little later
        time.sleep(0.01)
    if hvd.rank() == 0:
        hvd.allreduce_async(np.ones(1000), name="never over")
    os.kill(os.getpid(), signal.SIGKILL)
"""

STALL = """
import os, signal, time
import numpy as np, horovod.numpy as hvd
hvd.init()
dump = os.environ["HOROVOD_FLIGHT_DIR"] + "/flight.1.json"
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGUSR2)
    while not os.path.exists(dump):
        time.sleep(0.01)
    assert "SIGUSR2" in open(dump).read()
    open(dump + ".seen", "w").close()
while not os.path.exists(dump + ".seen"):  # nothing is in flight before, so that no stall replaces it
    time.sleep(0.01)
hvd.allreduce(np.ones(3), name="first")
while hvd.rank() == 1 and not os.path.exists(dump + ".enough"):
    time.sleep(0.01)
hvd.allreduce(np.ones(3), name="second")
"""


def events(path):
    """The events of a file, which must be strict JSON, with begin and end of phases in pairs."""
    found = json.loads(path.read_text())
    open_phases = {}
    for event in found:
        if event["ph"] in "BE":
            stack = open_phases.setdefault((event["pid"], event["tid"]), [])
            stack.append(event["name"]) if event["ph"] == "B" else stack.pop()
    assert not any(open_phases.values())
    return found


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_every_rank_writes_one_that_is_complete_however_it_ends(tmp_path, monkeypatch, end):
    monkeypatch.chdir(tmp_path)
    environment = {"HOROVOD_TIMELINE": "t.json", "HOROVOD_TIMELINE_ALL_RANKS": "1"}
    results = spawn.spawn([sys.executable, "-c", WORK, end], 2, timeout=60, env=environment, preloaded="numpy")
    # Rank 0 may hear of rank 1's death before it gets to its own.
    assert [result.returncode for result in results] == [0, 0] if end == "clean" else results[1].returncode == -9
    for name in ["t.json", "t.1.json"]:
        names = {event.get("name") for event in events(tmp_path / name)}
        assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "NEGOTIATE_ALLGATHER", "ALLGATHER"} <= names
        assert {"SHM_ALLREDUCE", "SHM_ALLGATHER"} <= names
    merged = tmp_path / "all.json"
    command = [sys.executable, "-m", "horovod.timeline", "merge", str(merged)]
    subprocess.run([*command, str(tmp_path / "t.json"), str(tmp_path / "t.1.json")], check=True)
    assert events(merged)


def test_the_clock_of_another_host_is_measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Two hosts in name, so the offset is about 0; that it was measured shows in a second clock.
    script = """
import os, time
os.environ["HOROVOD_HOSTNAME"] = "host" + os.environ["HOROVOD_RANK"]
import horovod.numpy as hvd
hvd.init()
while hvd.rank() == 1 and open("t.1.json").read().count("hvd_clock") < 2:
    time.sleep(0.01)
hvd.barrier()
"""
    environment = {"HOROVOD_TIMELINE": "t.json", "HOROVOD_TIMELINE_ALL_RANKS": "1"}
    spawn.run([sys.executable, "-c", script], 2, timeout=60, env=environment, preloaded="numpy")
    clocks = [
        [event["args"]["clock_offset_ns"] for event in events(tmp_path / name) if event.get("name") == "hvd_clock"]
        for name in ("t.json", "t.1.json")
    ]
    assert [len(found) for found in clocks] == [1, 2]
    assert abs(clocks[1][1]) < 10**9


def test_starts_and_stops_at_run_time(engine, tmp_path):
    hvd.start_timeline(tmp_path / "t.json", mark_cycles=True)
    hvd.allreduce(1.0, name="seen")
    hvd.stop_timeline()
    hvd.allreduce(1.0, name="unseen")
    texts = [str(event) for event in events(tmp_path / "t.json")]
    assert any("allreduce.seen" in text for text in texts)
    assert not any("unseen" in text for text in texts)


def test_wrong_paths_are_errors(engine, tmp_path):
    with pytest.raises(TypeError, match="file_path=3"):
        hvd.start_timeline(3)
    with pytest.raises(ValueError, match=r"no/such.*give the name of a file in a folder that exists"):
        hvd.start_timeline(str(tmp_path / "no/such/t.json"))
    with pytest.raises(ValueError, match="NUL"):
        hvd.start_timeline(str(tmp_path / "a\0b"))
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_written_through(engine, tmp_path):
    link = tmp_path / "t.json"
    link.symlink_to("there.json")
    for name in ("first", "second"):
        hvd.start_timeline(link)
        hvd.allreduce(1.0, name=name)
        hvd.stop_timeline()
        assert link.is_symlink()
        assert name in str(events(tmp_path / "there.json"))


def reasons(folder):
    """Why each rank has dumped, in a word."""
    heads = [json.loads(path.read_text().splitlines()[0]) for path in folder.glob("flight.*.json")]
    return {head["rank"]: head["reason"].split(":")[0] for head in heads}


def test_a_stall_leaves_dumps_that_name_the_rank(tmp_path):
    environment = {"HOROVOD_FLIGHT_DIR": str(tmp_path), "HOROVOD_STALL_CHECK_TIME_SECONDS": "1"}
    command = [sys.executable, "-c", STALL]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        job = pool.submit(spawn.spawn, command, 3, timeout=60, env=environment, preloaded="numpy")
        while not job.done() and reasons(tmp_path) != {0: "stall", 1: "stall", 2: "stall"}:
            time.sleep(0.1)
        assert not job.done()
        report = [sys.executable, "-m", "horovod.flight", str(tmp_path)]
        text = subprocess.run(report, capture_output=True, text=True, check=False).stdout
        (tmp_path / "flight.1.json.enough").touch()
    assert "rank 1" in text
    assert "allreduce.second" in text
