# SPDX-License-Identifier: Apache-2.0
"""horovod.run."""

import doctest
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading

import horovod
import launching
import pytest
from horovod.common.exceptions import HorovodUnsupportedError


@pytest.fixture(autouse=True)
def _no_files_left():
    before = set(os.listdir(tempfile.gettempdir()))
    yield
    left = {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("horovod-run-")} - before
    # Other tests may have some meanwhile; theirs go, too.
    launching.wait_until(lambda: not left & set(os.listdir(tempfile.gettempdir())))


def test_results_come_in_the_order_of_ranks(capfd):
    def train(factor, offset=0):
        import horovod.numpy as hvd

        hvd.init()
        print("hello from", hvd.rank())
        return hvd.rank() * factor + offset, hvd.size()

    assert horovod.run(train, args=(10,), kwargs={"offset": 1}, num_proc=2) == [(1, 2), (11, 2)]
    assert sorted(capfd.readouterr().out.splitlines()) == [
        "[0]<stdout>:hello from 0",
        "[1]<stdout>:hello from 1",
    ]


def test_an_exception_is_raised_here_with_rank_and_traceback():
    def train():
        if os.environ["HOROVOD_RANK"] == "1":
            raise KeyError("lost")

    with pytest.raises(KeyError, match="lost") as caught:
        horovod.run(train, num_proc=2)
    assert "on rank 1:\nTraceback" in str(caught.value.__cause__)
    assert "in train" in str(caught.value.__cause__)


def test_an_exception_that_cannot_travel_is_described():
    class OddError(Exception):
        def __init__(self, one, two):
            super().__init__(one)

    def train():
        raise OddError(1, 2)

    with pytest.raises(RuntimeError, match="rank 0 raised OddError: 1"):
        horovod.run(train, num_proc=1)


def test_a_result_that_cannot_travel_is_an_error():
    with pytest.raises(TypeError, match="pickle"):
        horovod.run(threading.Lock, num_proc=1)


def test_a_rank_that_dies_is_described():
    def train():
        if os.environ["HOROVOD_RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        import time

        time.sleep(100)

    with pytest.raises(RuntimeError, match=r"rank 1 \(host localhost, pid \d+\) ended with SIGKILL"):
        horovod.run(train, num_proc=2)


def test_a_host_that_is_not_there_is_named():
    with pytest.raises(RuntimeError, match=r"host no-such-host\.invalid: "):
        horovod.run(len, num_proc=1, hosts="no-such-host.invalid:1")


def test_wrong_arguments():
    with pytest.raises(ValueError, match="hosts and hostfile"):
        horovod.run(len, hosts="a", hostfile="b")
    with pytest.raises(ValueError, match="use_gloo and use_mpi"):
        horovod.run(len, use_gloo=True, use_mpi=True)
    with pytest.raises(TypeError, match="func must be callable"):
        horovod.run(3)
    with pytest.raises(ValueError, match="-np 2: the hosts have 1 slot"):
        horovod.run(len, num_proc=2, hosts="localhost:1")
    with pytest.raises(ValueError, match="--min-np 2: is more than -np 1"):
        horovod.run(len, min_num_proc=2)
    with pytest.raises(ValueError, match="--elastic-timeout: is for elastic jobs"):
        horovod.run(len, elastic_timeout=3)
    with pytest.raises(HorovodUnsupportedError, match="not in this release"):
        horovod.run(len, min_num_proc=1, cooldown_range=(1, 2))


def test_old_names_still_work():
    with pytest.warns(DeprecationWarning, match="np is now called num_proc"):
        assert horovod.run(os.getcwd, np=1) == [os.getcwd()]


def test_functions_of_modules_beside_the_script(tmp_path):
    (tmp_path / "beside.py").write_text("def answer():\n    return 42\n")
    script = tmp_path / "script.py"
    script.write_text("import beside, horovod\nprint(horovod.run(beside.answer, num_proc=1))\n")
    result = subprocess.run([sys.executable, script], cwd="/", capture_output=True, text=True, timeout=120, check=False)
    assert result.stdout == "[42]\n", result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_caller_that_is_ended_takes_the_job_along(number, tmp_path):
    script = (
        "import horovod, os, sys, time\n"
        "def train(folder):\n"
        "    open(f'{folder}/{os.getpid()}', 'w').write(f'{os.getpid()}\\n')\n"
        "    time.sleep(1000)\n"
        "horovod.run(train, args=(sys.argv[1],), num_proc=2)\n"
    )
    environment = dict(launching.clean_environment(), TMPDIR=str(tmp_path))
    folder = tmp_path / "pids"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", script, folder], env=environment, stderr=subprocess.PIPE) as process:
        pids = launching.pids_in(folder, 2)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == -number
    launching.wait_until(lambda: not any(launching.is_alive(pid) for pid in pids))
    if number == signal.SIGINT:
        assert b"KeyboardInterrupt" in err
    # The job's files are removed by horovodrun where the caller had no time for it.
    launching.wait_until(lambda: list(tmp_path.iterdir()) == [folder])


def test_the_guides_example_and_the_docstrings():
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/guides/launching.md").read_text()
    block, expected = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", page, flags=re.S).groups()
    result = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, timeout=120, check=False)
    assert result.stdout == expected, result.stderr
    examples = doctest.testmod(horovod.runner.api)
    assert (examples.attempted, examples.failed) == (3, 0)
