# SPDX-License-Identifier: Apache-2.0
"""Servers, launchers and readers that are killed; exactly_once."""

from __future__ import annotations

import ast
import contextlib
import os
import pathlib
import random
import signal
import sys
import threading

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

import compute  # noqa: E402
import pytest  # noqa: E402
import spawn  # noqa: E402
from horovod.tensorflow.data import along  # noqa: E402

ELEMENTS = 2000
# SEEDS=100 in the environment runs more of them.
SEEDS = range(1, int(os.environ.get("SEEDS", "3")) + 1)
# Few enough that the servers stay up in the end, on however busy a machine; a job ends at 31 deaths of one in 60 s.
KILLS = 6

# A reader takes its batches while servers die: in the middle of the pass it goes on after the next kill only, and the
# last kills come whenever they do.
EXACTLY_ONCE = f"""
epoch = exactly_once(int(sys.argv[2]), lambda one: (one * 2, tf.cast(one, tf.float32)), config, rank, size, 50)
got = []
for step, ((double, same), ids) in enumerate(epoch):
    assert double.numpy().tolist() == (2 * ids).tolist() and same.numpy().tolist() == ids.tolist()
    got += ids.tolist()
    epoch.done(ids)
    open(sys.argv[1] + f".reads{{rank}}", "w").close()
    while os.path.getsize(sys.argv[1] + ".kills") < min(step, {KILLS} - 2):
        time.sleep(0.02)
assert sorted(got) == list(range(rank, int(sys.argv[2]), size)), len(got)
assert sorted(epoch.marks().tolist()) == sorted(got)
print(len(epoch), epoch.report())
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_each_element_once_while_servers_are_killed(tmp_path, seed):
    draw = random.Random(seed)
    over = threading.Event()
    kills = tmp_path / "compute.json.kills"
    kills.touch()

    def kill(config):
        firsts = [tmp_path / f"compute.json.reads{rank}" for rank in range(2)]
        compute.until(lambda: over.is_set() or all(one.exists() for one in firsts), "first batches of both ranks")
        while kills.stat().st_size < KILLS and not over.wait(draw.uniform(0, 0.6)):
            found = compute.servers(config)
            with contextlib.suppress(KeyError, ProcessLookupError):  # it is not back from its last death yet
                os.kill(found[draw.choice(["d0", "w0", "w1"])], signal.SIGKILL)
                with kills.open("a") as file:
                    file.write("x")

    with compute.job(2, folder=tmp_path) as config:
        killer = threading.Thread(target=kill, args=(config,))
        killer.start()
        try:
            lines = compute.outputs(EXACTLY_ONCE, tmp_path, 2, ELEMENTS)
        finally:
            over.set()
            killer.join()
    for line in lines:
        assert line.splitlines()[-1].startswith(f"20 {ELEMENTS // 2} of {ELEMENTS // 2} elements, each once; "), line


def test_a_pass_ends_whose_last_news_died_with_both_servers(tmp_path):
    text = """
    from horovod.tensorflow.data import along
    from horovod.tensorflow.data.reader import reader
    from horovod.tensorflow.data.send import distribute
    own = reader(config, rank, size)
    read = lambda: distribute(tf.data.Dataset.range(100), own, "parallel_epochs", "one pass")
    got = []
    for one in along.read_along(read):
        got.append(int(one))
        if len(got) == 50:
            open(sys.argv[1] + ".half", "w").close()
            while not os.path.exists(sys.argv[1] + ".go"):
                time.sleep(0.02)
        if len(got) == 100:
            open(sys.argv[1] + ".all", "w").close()
    assert sorted(set(got)) == list(range(100))
    print("ended")
    """

    def kill(config):
        compute.until((tmp_path / "compute.json.half").exists, "half of the elements")
        found = compute.servers(config)
        os.kill(found["d0"], signal.SIGSTOP)  # it does not hear that the task is done, and neither does its successor
        (tmp_path / "compute.json.go").touch()
        compute.until((tmp_path / "compute.json.all").exists, "all elements")
        for name in ("w0", "d0"):
            os.kill(found[name], signal.SIGKILL)

    with compute.job(1, folder=tmp_path) as config:
        killer = threading.Thread(target=kill, args=(config,))
        killer.start()
        assert compute.outputs(text, tmp_path) == ["ended\n"]
        killer.join()


def test_what_another_reader_of_a_pass_holds_is_taken(monkeypatch):
    monkeypatch.setattr(along, "FIRST_WAIT_S", 0)
    readers = []
    joined = threading.Event()

    def read():
        readers.append(threading.current_thread())
        if len(readers) == 1:
            joined.wait()
            return
        joined.set()
        readers[0].join()  # the pass is at its end for the first
        yield "held"

    assert list(along.read_along(read)) == ["held"]


def test_a_worker_is_started_again_at_its_address(tmp_path):
    with compute.job(2, folder=tmp_path) as config:
        config.compute_client().wait_for_dispatcher_worker_registration(0)
        before = compute.servers(config)
        assert sorted(before) == ["d0", "w0", "w1"]
        for name in ("w0", "d0"):
            os.kill(before[name], signal.SIGKILL)
            compute.until(lambda name=name: compute.servers(config).get(name, before[name]) != before[name], name)
        text = "print(numbers(tf.data.Dataset.range(100).send_to_data_service(config, 0, 1)) == list(range(100)))"
        assert compute.outputs(text, tmp_path) == ["True\n"]


def test_a_pass_goes_on_when_a_server_is_killed_in_its_middle(tmp_path):
    text = """
    for server in sys.argv[2:]:
        got = []
        data = tf.data.Dataset.range(600).send_to_data_service(config, rank, size)
        for one in data:
            got.append(int(one))
            if len(got) == 100:
                open(sys.argv[1] + f".{server}", "w").close()
                while not os.path.exists(sys.argv[1] + f".{server}.again"):
                    time.sleep(0.02)
        assert len(set(got)) == len(got), "an element came twice"
        print(server, 600 - len(got))
    """
    names = ("w0", "d0")

    def kill(config):
        for name in names:
            asked = tmp_path / f"compute.json.{name}"
            compute.until(asked.exists, f"100 elements before the end of {name}")
            before = compute.servers(config)[name]
            os.kill(before, signal.SIGKILL)
            compute.until(lambda name=name, pid=before: compute.servers(config).get(name, pid) != pid, name)
            asked.with_suffix(f".{name}.again").touch()

    with compute.job(2, folder=tmp_path) as config:
        killer = threading.Thread(target=kill, args=(config,))
        killer.start()
        command = compute.words(text, tmp_path / "compute.json", *names)
        env = {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONWARNINGS": "ignore"}
        (result,) = spawn.spawn(command, 1, env=env, timeout=compute.PATIENCE_S, preloaded="tensorflow")
        killer.join()
    assert result.returncode == 0, spawn.describe(result)
    (_, of_worker), (_, of_dispatcher) = (line.split() for line in result.output.strip().splitlines()[-2:])
    assert int(of_worker) < 100  # what the worker held is lost
    assert int(of_dispatcher) == 0


def test_marks_of_an_earlier_run_are_left_out(tmp_path):
    text = """
    epoch = exactly_once([5, 3, 8, 1], lambda one: one, config, rank, size, batch_size=2)
    batch, ids = next(iter(epoch))
    epoch.done(ids)
    rest = exactly_once([5, 3, 8, 1], lambda one: one, config, rank, size, batch_size=1, done=epoch.marks())
    others = [int(number) for _, numbers in rest for number in numbers]
    assert sorted(ids.tolist() + others) == [1, 3, 5, 8]
    print(rest.report())
    """
    with compute.job(1, folder=tmp_path):
        (line,) = compute.outputs(text, tmp_path)
    assert line.startswith("0 of 2 elements, each once; ")


def test_marks_of_several_ranks_are_united(tmp_path):
    text = """
    import horovod.tensorflow as hvd
    hvd.init()
    ids = np.random.default_rng(7).permutation(50)
    def some(done, steps):
        epoch, got = exactly_once(ids, lambda one: one, config, rank, size, batch_size=5, done=done), []
        for step, (batch, own) in enumerate(epoch):
            if step == steps:
                break
            got += batch.numpy().tolist()
            epoch.done(own)
        return epoch, got
    epoch, before = some((), 2)
    try:
        some(epoch.marks(), 1)
        refused = ""
    except ValueError as error:
        refused = str(error)
    refused = "".join(hvd.allgather_object(refused))
    epoch, after = some(np.concatenate(hvd.allgather_object(epoch.marks())), None)
    print((before, after, refused))
    """
    with compute.job(1, folder=tmp_path):
        found = [ast.literal_eval(one) for one in compute.outputs(text, tmp_path, 2)]
    assert sorted(one for before, after, _ in found for one in before + after) == list(range(50))
    assert len({len(after) for _, after, _ in found}) == 1
    assert "exactly_once: ranks 0 and 1 differ in ids, done or batch_size" in found[0][2]
    assert "np.concatenate(hvd.allgather_object(batches.marks()))" in found[0][2]


def test_a_reader_ends_when_its_compute_job_is_killed(tmp_path):
    text = """
    data = iter(tf.data.Dataset.range(1000).repeat().send_to_data_service(config, rank, size))
    print("reads", int(next(data)) >= 0, flush=True)
    open(sys.argv[1] + f".reads{rank}", "w").close()
    for one in data:
        pass
    """
    file = tmp_path / "compute.json"
    with compute.launched(2, file) as launcher:

        def kill():
            compute.until(lambda: (tmp_path / "compute.json.reads0").exists(), "reading")
            os.kill(launcher.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        (result,) = compute.read(text, tmp_path)
        killer.join()
    assert result.returncode == 3, spawn.describe(result)
    assert "the compute job ended before training did (" in result.output
    # What kept its processes' files cleans up after them.
    compute.until(lambda: not file.exists(), "removal of the config file")


@pytest.mark.row("d16")
def test_round_robin_ends_when_a_consumer_is_lost(tmp_path):
    text = """
    data = tf.data.Dataset.range(1000).repeat()
    data = iter(data.send_to_data_service(config, rank, size, reuse_dataset=True, round_robin=True))
    for _ in range(5):
        next(data)
    if rank == 1:
        os.kill(os.getpid(), 9)
    for one in data:
        pass
    """
    with compute.job(1, folder=tmp_path):
        one, other = compute.read(text, tmp_path, 2)
    assert other.returncode == -signal.SIGKILL
    assert one.returncode == 3, spawn.describe(one)
    assert "rank 1 was lost, and with round_robin=True no rank gets data without it" in one.output


IN_TURN = """
import dataclasses
config.compute_client().wait_for_dispatcher_worker_registration(0)
config = dataclasses.replace(config, timeout={timeout})
data = tf.data.Dataset.range(1000).repeat()
data = iter(data.send_to_data_service(config, rank, 2, reuse_dataset=True, round_robin=True))
for number in range(200):
    if rank == 1 and number == 5:
        sys.exit()
    next(data)
"""
IN_TURN_BY_ITSELF = """
import horovod.tensorflow as hvd
hvd.init()
with tf_data_service(config, rank) as address:
    turns = distribute("distributed_epoch", address, job_name="turns", consumer_index=rank, num_consumers=size)
    data = iter(tf.data.Dataset.range(1000).repeat().apply(turns))
    for number in range(200):
        if rank == 1 and number == 5:
            os.kill(os.getpid(), 9)
        next(data)
"""


@pytest.mark.row("d16")
@pytest.mark.parametrize(
    ("text", "ranks", "side", "sentence"),
    [
        (IN_TURN.format(timeout=120), 2, "compute", "rank 1 has ended, and with round_robin=True no rank gets data"),
        (IN_TURN.format(timeout=1), 1, "compute", "rank 1 of 2 does not read, and with round_robin=True no rank gets"),
        (IN_TURN_BY_ITSELF, 2, "training", "rank 1 was lost, and with round_robin=True no rank gets data without it"),
    ],
    ids=["leaves", "never comes", "training side"],
)
def test_round_robin_ends_without_a_consumer(tmp_path, text, ranks, side, sentence):
    with compute.job(1, side=side, folder=tmp_path):
        one, *_ = compute.read(text, tmp_path, ranks)
    assert one.returncode == 3, spawn.describe(one)
    assert sentence in one.output


def test_a_killed_worker_is_made_up_for_in_turns_and_in_parallel_epochs(tmp_path):
    text = """
    def read(data, name, most):
        got = []
        for one in data:
            got.append(int(one))
            if len(got) == 50:
                open(f"{sys.argv[1]}.{name}{rank}", "w").close()
                while not os.path.exists(f"{sys.argv[1]}.{name}.again"):
                    time.sleep(0.02)
            if len(got) == most:
                break
        return got
    turns = tf.data.Dataset.range(1000).repeat()
    turns = turns.send_to_data_service(config, rank, size, reuse_dataset=True, round_robin=True)
    assert len(read(turns, "turns", 300)) == 300
    every = read(tf.data.Dataset.range(300).send_to_data_service(config, rank, size, "parallel_epochs"), "every", -1)
    assert set(every) == set(range(300)) and len(every) >= 600, len(every)
    print("read")
    """

    def kill(config):
        for name in ("turns", "every"):
            files = [tmp_path / f"compute.json.{name}{rank}" for rank in range(2)]
            compute.until(lambda files=files: all(one.exists() for one in files), f"50 elements of {name}")
            before = compute.servers(config)["w0"]
            os.kill(before, signal.SIGKILL)
            compute.until(lambda pid=before: compute.servers(config).get("w0", pid) != pid, "another worker")
            (tmp_path / f"compute.json.{name}.again").touch()

    with compute.job(2, folder=tmp_path) as config:
        killer = threading.Thread(target=kill, args=(config,))
        killer.start()
        found = compute.outputs(text, tmp_path, 2)
        killer.join()
    assert [one.splitlines()[-1] for one in found] == ["read"] * 2


def test_a_reader_after_the_end_is_told(tmp_path):
    text = """
    from horovod.tensorflow.data.reader import reader
    tf.data.Dataset.range(3).send_to_data_service(config, 0, 1)
    own = reader(config, 0, 1)
    config.compute_client().shutdown()
    while not own.shut_down:
        time.sleep(0.01)
    tf.data.Dataset.range(3).send_to_data_service(config, 0, 1)
    """
    with compute.job(1, folder=tmp_path):
        (result,) = compute.read(text, tmp_path, 1)
    assert "was shut down: start a new compute job to read again" in result.output, spawn.describe(result)


def test_a_data_set_that_is_sent_when_the_job_ends_is_not_sent_for_ever(tmp_path):
    text = """
    import threading
    from horovod.tensorflow.data.reader import reader
    with reader(config, 0, 1).sending():
        config.compute_client().shutdown()
        threading.Event().wait()
    """
    with compute.job(1, folder=tmp_path):
        (result,) = compute.read(text, tmp_path, 1)
    assert result.returncode == 3, spawn.describe(result)
    assert "was shut down while a data set was sent to it. This process ends with code 3." in result.output
