# SPDX-License-Identifier: Apache-2.0
"""The tests' own ways to start ranks: none is left behind, whoever is killed, and forked ones are as fresh ones."""

import os
import pathlib
import signal
import sys

import launching
import preloaded
import pytest
import spawn

HERE = pathlib.Path(__file__).resolve().parent

both_ways = pytest.mark.parametrize("kind", ["", "numpy"])


@both_ways
@pytest.mark.parametrize("own_servers", [False, True])
def test_ranks_die_with_the_one_that_started_them(kind, own_servers, tmp_path):
    (tmp_path / "ranks").mkdir()
    rank = f"import os, time; print(os.getpid(), file=open('{tmp_path}/ranks/%d' % os.getpid(), 'w')); time.sleep(1000)"
    code = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import preloaded, spawn
print(preloaded.home()[0], flush=True)
spawn.spawn([sys.executable, '-c', {rank!r}], 2, preloaded={kind!r})
"""
    env = {name: value for name, value in os.environ.items() if name != preloaded.HOME or not own_servers}
    with launching.start([sys.executable, "-c", code], env) as starter:
        servers = pathlib.Path(starter.stdout.readline().strip())
        pids = launching.pids_in(tmp_path / "ranks", 2)
        starter.kill()
    launching.wait_until(lambda: not any(launching.is_alive(pid) for pid in pids))
    if kind and own_servers:
        launching.wait_until(lambda: not servers.exists())


SELF = """
import os, signal, sys
assert "horovod.numpy" in sys.modules or not {preloaded!r}
assert os.getsid(0) == os.getpid() == os.getpgrp()
assert len(os.listdir("/proc/self/task")) == 1
assert sys.stdin.read() == "" and not sys.path[0] and __name__ == "__main__"
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
files = sorted(int(name) for name in os.listdir("/proc/self/fd"))
print(sys.argv, os.getcwd(), os.environ["HOROVOD_RANK"], os.environ["MORE"], len(files))
print("to stderr", file=sys.stderr)
os.system("echo of a child")
sys.exit(int(os.environ["HOROVOD_RANK"]) + 3)
"""


@both_ways
def test_what_a_rank_finds(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", SELF.format(preloaded=kind), "a", "b c"]
    results = spawn.spawn(command, 2, env={"MORE": "more"}, preloaded=kind)
    for rank, result in enumerate(results):
        # The three, and the folder that is being listed.
        expected = f"['-c', 'a', 'b c'] {tmp_path} {rank} more 4\nto stderr\nof a child\n"
        assert (result.output, result.returncode, result.killed) == (expected, rank + 3, False)


@both_ways
def test_how_ranks_end(kind):
    code = """
import os
if os.environ["HOROVOD_RANK"] == "0":
    os.kill(os.getpid(), 9)
raise ValueError("in vain")
"""
    killed, failed = spawn.spawn([sys.executable, "-c", code], 2, preloaded=kind)
    assert (killed.returncode, killed.killed) == (-signal.SIGKILL, False)
    assert (failed.returncode, failed.killed) == (1, False)
    assert failed.output.endswith("ValueError: in vain\n")


@both_ways
def test_a_rank_that_outlives_the_grace_of_a_failure_goes_with_its_children(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(spawn, "GRACE_S", 0.2)
    code = f"""
import os, subprocess, sys, time
while os.environ["HOROVOD_RANK"] == "0" and not os.listdir("{tmp_path}"):
    time.sleep(0.01)
if os.environ["HOROVOD_RANK"] == "0":
    sys.exit(1)
child = subprocess.Popen(["sleep", "1000"])
print(os.getpid(), child.pid, flush=True)
open("{tmp_path}/there", "w")
time.sleep(1000)
"""
    _, late = spawn.spawn([sys.executable, "-c", code], 2, preloaded=kind)
    assert (late.returncode, late.killed) == (-signal.SIGKILL, True)
    pids = [int(pid) for pid in late.output.split()]
    assert len(pids) == 2
    launching.wait_until(lambda: not any(launching.is_alive(pid) for pid in pids))


def test_ranks_draw_different_numbers_and_have_different_hashes():
    code = "import random, numpy; print(random.random(), numpy.random.random(), hash('a'))"
    first, second = spawn.run([sys.executable, "-c", code], 2, preloaded="numpy")
    assert not set(first.split()) & set(second.split())


def test_a_framework_is_forked_while_it_has_started_nothing():
    code = """
import os, sys
assert len(os.listdir("/proc/self/task")) == 1
tensorflow = sys.modules["tensorflow"]
from tensorflow.python.eager import context
assert context.context_safe() is None
assert tensorflow.reduce_sum(tensorflow.ones([3])).numpy() == 3.0
"""
    spawn.run([sys.executable, "-c", code], 2, env={"TF_CPP_MIN_LOG_LEVEL": "2"}, preloaded="tensorflow")
