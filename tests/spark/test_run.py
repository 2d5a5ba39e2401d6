# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.run on a cluster: results, output, environment, modules, and the ways in which runs fail."""

import io
import json
import os
import pathlib
import runpy
import signal
import sys
import threading
import time

import horovod.spark
import launching
import pytest
from horovod.spark import HorovodRunner
from wardens import kill, rank_processes

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SLOTS = 4


def sum_of_ranks(factor, offset=0):
    import horovod.numpy as hvd
    import numpy as np

    hvd.init()
    total = hvd.allreduce(np.full(3, float(hvd.rank() * factor + offset)), op=hvd.Sum)
    return hvd.rank(), hvd.local_rank(), hvd.local_size(), hvd.cross_size(), total.tolist()


@pytest.mark.row("e25")
def test_results_come_in_the_order_of_ranks(context):
    expected = [(rank, rank, SLOTS, 1, [16.0] * 3) for rank in range(SLOTS)]
    assert horovod.spark.run(sum_of_ranks, args=(2,), kwargs={"offset": 1}) == expected
    assert horovod.spark.run(sum_of_ranks, args=(1,), num_proc=2)[1] == (1, 1, 2, 1, [1.0] * 3)


def test_lines_arrive_whole_with_their_rank_and_large_values_travel(context):
    def talk(data):
        import os
        import sys

        print(f"out of {os.environ['HOROVOD_RANK']}\nünd more")
        sys.stderr.write("no end of line")
        return data[::-1]

    out, err = io.StringIO(), io.StringIO()
    data = os.urandom(5 << 20)
    assert horovod.spark.run(talk, args=(data,), num_proc=2, stdout=out, stderr=err) == [data[::-1]] * 2
    lines = out.getvalue().splitlines()
    assert sorted(lines) == sorted(f"[{r}]<stdout>:{text}" for r in (0, 1) for text in (f"out of {r}", "ünd more"))
    assert sorted(err.getvalue().splitlines()) == ["[0]<stderr>:no end of line", "[1]<stderr>:no end of line"]


def test_a_rank_sees_files_of_py_files_its_own_variables_and_no_secret(context, tmp_path):
    (tmp_path / "sent_along.py").write_text("ANSWER = 42\n")
    context.addPyFile(str(tmp_path / "sent_along.py"))

    def look():
        import os

        import sent_along

        with open("/proc/self/cmdline") as file:
            return sent_along.ANSWER, sent_along.__file__, dict(os.environ), file.read()

    for answer, file, variables, command in horovod.spark.run(look, num_proc=2, env={"MINE": "x"}):
        assert answer == 42
        assert not file.startswith(str(tmp_path))  # Spark's copy
        assert variables["MINE"] == "x"
        assert variables["OMP_NUM_THREADS"] == "1"  # cores of a slot
        assert not [name for name in variables if "SECRET" in name or "TOKEN" in name]
        assert "horovod.spark.child" in command


@pytest.mark.timeout(900)
def test_the_keras_example_trains_on_the_interpreter_that_has_tensorflow(context, monkeypatch, capsys):
    example, python = REPOSITORY / "examples/spark/keras_fit.py", REPOSITORY / ".venv/bin/python"
    monkeypatch.setattr(sys, "argv", [str(example), "--num-proc", "2", "--python", str(python)])
    runpy.run_path(str(example), run_name="__main__")
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [(one["rank"], one["size"]) for one in results] == [(0, 2), (1, 2)]
    assert results[0]["keras"].startswith("3.")
    assert results[0]["accuracy"] > 0.85
    assert results[0]["weights"] == results[1]["weights"]


def test_horovod_runner_on_the_cluster_and_on_the_driver(context, capsys):
    def whoami(word):
        import os

        print("said")
        return word, os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"]

    assert HorovodRunner(np=2).run(whoami, word="hello") == ("hello", "0", "2")
    assert capsys.readouterr().out.count("said") == 2
    assert HorovodRunner(np=2, driver_log_verbosity="log_callback_only").run(whoami, word="hello")[1] == "0"
    assert HorovodRunner(np=-2).run(whoami, word="near") == ("near", "0", "2")
    with pytest.raises(TypeError, match="np='2'"):
        HorovodRunner(np="2")


# How runs fail.


def wait_in_a_barrier(folder, broken=None):
    import os

    import horovod.numpy as hvd

    hvd.init()
    with open(os.path.join(folder, f".{hvd.rank()}"), "w") as file:
        file.write(f"{os.getpid()} {os.getppid()}")
    os.rename(os.path.join(folder, f".{hvd.rank()}"), os.path.join(folder, str(hvd.rank())))
    if broken == hvd.rank():
        raise LookupError("a sentence of the user's")
    hvd.barrier()
    hvd.allreduce(__import__("numpy").ones(1))
    if hvd.rank() == 0:
        __import__("time").sleep(1000)
    hvd.barrier()


class Running:
    """A run of wait_in_a_barrier on two ranks, in a thread, with what became of it."""

    def __init__(self, folder, **options):
        self._folder, self._options = folder, options
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        names = [folder / "0", folder / "1"]
        launching.wait_until(lambda: all(name.exists() for name in names) or not self._thread.is_alive(), 120)
        texts = [name.read_text().split() for name in names]
        self.ranks = [int(pid) for pid, _ in texts]
        self.wardens = [int(pid) for _, pid in texts]
        self.tasks = [parent_of(pid) for pid in self.wardens]

    def _run(self):
        try:
            self.result = horovod.spark.run(wait_in_a_barrier, args=(str(self._folder),), num_proc=2, **self._options)
        except BaseException as error:
            self.result = error
        self.at = time.monotonic()

    def error(self):
        self._thread.join(120)
        assert not self._thread.is_alive()
        launching.wait_until(lambda: not rank_processes())
        return self.result


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def test_an_exception_comes_with_rank_text_and_traceback(context, tmp_path):
    with pytest.raises(RuntimeError, match=r"rank 1 \(host .*, pid \d+\) raised LookupError: .*a sentence") as caught:
        horovod.spark.run(wait_in_a_barrier, args=(str(tmp_path), 1), num_proc=2)
    assert isinstance(caught.value.__cause__, LookupError)
    assert "in wait_in_a_barrier" in str(caught.value)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_is_named(context, tmp_path, rank):
    run = Running(tmp_path)
    begin = time.monotonic()
    kill(run.ranks[rank])
    assert f"rank {rank} (host " in str(run.error())
    print(f"{run.at - begin:.3f} s from the kill of rank {rank} to the driver's exception")
    assert run.at - begin < 10  # 0.1 s on an idle machine
    assert f"pid {run.ranks[rank]}) was killed by SIGKILL" in str(run.error())


def test_a_killed_warden_takes_its_rank_along(context, tmp_path):
    run = Running(tmp_path)
    kill(run.wardens[1])
    assert "rank 1 (host " in str(run.error())
    assert "lost its warden" in str(run.error())


def test_a_killed_worker_of_spark_is_named_with_its_rank(context, tmp_path):
    run = Running(tmp_path)
    kill(run.tasks[1])
    error = run.error()
    assert "lost the Spark task of rank 1 (host " in str(error)
    assert f"pid {run.tasks[1]})" in str(error)


def test_an_exit_without_a_result_is_told_with_the_last_lines(context):
    def leave():
        import os

        os.write(2, b"my last words\n")
        os._exit(3)

    with pytest.raises(
        RuntimeError, match=r"rank 0 .* ended with exit code 3; its last lines on stderr:\nmy last words"
    ):
        horovod.spark.run(leave, num_proc=1, stderr=io.StringIO())


@pytest.mark.parametrize("how", ["all", "group"])
def test_a_cancelled_run_ends_at_once(context, tmp_path, how):
    if how == "group":
        context.setJobGroup("mine", "a group of the user's")
    try:
        run = Running(tmp_path) if how == "all" else InGroup(context, tmp_path)
        context.cancelAllJobs() if how == "all" else context.cancelJobGroup("mine")
        assert re_cancelled(str(run.error()))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


class InGroup(Running):
    """The thread of the run has the caller's job group."""

    def __init__(self, context, folder):
        self._context = context
        super().__init__(folder)

    def _run(self):
        self._context.setJobGroup("mine", "a group of the user's")
        super()._run()


def re_cancelled(text):
    return "Spark ended the run before all ranks had ended:" in text and "cancel" in text.lower()


def test_an_interrupt_ends_the_ranks(context, tmp_path):
    def interrupt():
        launching.wait_until(lambda: (tmp_path / "0").exists() and (tmp_path / "1").exists(), 120)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        horovod.spark.run(wait_in_a_barrier, args=(str(tmp_path),), num_proc=2)


def test_too_few_slots_are_an_error_with_both_numbers(context):
    with pytest.raises(TimeoutError, match=r"num_proc=9 needs 9 slots, and Spark had 4 after 0\.3 s"):
        horovod.spark.run(print, num_proc=9, start_timeout=0.3)


def test_busy_slots_are_waited_for(context, tmp_path):
    def hold(_):
        while not (tmp_path / "go on").exists():
            time.sleep(0.05)

    holder = threading.Thread(target=lambda: context.parallelize([0] * SLOTS, SLOTS).foreach(hold))
    holder.start()
    launching.wait_until(lambda: len(context.statusTracker().getActiveJobsIds()) == 1)
    with pytest.raises(TimeoutError, match=r"num_proc=2: 0 of 2 tasks started in 1 s, and Spark has 4 slots"):
        horovod.spark.run(sum_of_ranks, args=(1,), num_proc=2, start_timeout=1)
    (tmp_path / "go on").touch()
    holder.join()
    assert len(horovod.spark.run(sum_of_ranks, args=(1,), num_proc=2)) == 2


def test_another_version_is_named_in_one_line(context, monkeypatch):
    versions = {"Python": "3.1", "cloudpickle": "0", "hvd": "0"}
    monkeypatch.setattr("horovod.spark.coordinator.versions", lambda: versions)
    with pytest.raises(RuntimeError, match=rf"{sys.executable} has Python .* and the driver 3\.1: set PYSPARK_PYTHON"):
        horovod.spark.run(print, num_proc=1)


def test_the_token_is_in_no_file_of_spark(context, spark, monkeypatch):
    tokens = []

    class Noting(horovod.spark.context.Coordinator):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            tokens.append(self.token)

    monkeypatch.setattr(horovod.spark.context, "Coordinator", Noting)
    horovod.spark.run(sum_of_ranks, args=(1,), num_proc=2)
    files = [file.read_bytes() for file in spark.folder.rglob("*") if file.is_file()]
    assert any(b"SparkListenerJobEnd" in text for text in files)
    for text in files:
        assert tokens[0] not in text
        assert tokens[0].hex().encode() not in text


def test_a_killed_executor_is_told_and_the_next_run_works(context, tmp_path):
    # Last: Spark needs a while for another executor.
    run = Running(tmp_path)
    daemon = parent_of(run.tasks[1])
    kill(parent_of(daemon))
    assert "lost the Spark task of rank" in str(run.error())
    assert len(horovod.spark.run(sum_of_ranks, args=(1,), num_proc=SLOTS)) == SLOTS
