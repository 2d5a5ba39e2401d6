# SPDX-License-Identifier: Apache-2.0
"""The arena heap: ranks whose large blocks of malloc lie in the arena do the same as others."""

import doctest
import pathlib
import subprocess
import sys

import launching
import pytest
from horovod import heap

HERE = pathlib.Path(__file__).resolve().parent
SEEDS = 200


def run(*words: str, kind: str = "arena"):
    done = launching.horovodrun("-np", "2", "--heap", kind, "--prefix", "", sys.executable, *words, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def test_examples_run():
    assert doctest.testmod(heap).failed == 0


def test_the_whole_family_is_right():
    assert run(str(HERE / "heap_calls.py")).stdout.splitlines() == ["right"] * 2


def test_forked_children_and_parents_write_to_memory_of_their_own():
    arena, system = (run(str(HERE / "heap_program.py"), "0", str(SEEDS), kind=kind) for kind in ("arena", "system"))
    assert len(system.stdout.splitlines()) == SEEDS
    assert arena.stdout == system.stdout


def test_a_full_arena_is_no_failure():
    code = """
import horovod.numpy as hvd, numpy as np
hvd.empty(1)  # loads the library
early = [np.full(3 << 20, n, np.uint8) for n in range(40)]
ranges = [line.split()[0].split("-") for line in open("/proc/self/maps") if "memfd:hvd-arena" in line]
begin, end = int(ranges[0][0], 16), int(ranges[-1][1], 16)
inside = sum(begin <= array.ctypes.data < end for array in early)
assert 12 <= inside <= 16, inside  # three quarters of the limit, which holds before init, too
del early
hvd.init()
kept = [np.full(3 << 20, n, np.uint8) for n in range(40)]
assert all((array == n).all() for n, array in enumerate(kept))
assert (hvd.allreduce(kept[39], op=hvd.Max, name="last") == 39).all()
"""
    done = launching.horovodrun(
        "-np", "2", "--heap", "arena", "-x", "HOROVOD_ARENA_BYTES=67108864", sys.executable, "-c", code
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "code", ["print(sum(bytearray(1 << 22)))", "import numpy; print(int(numpy.zeros(1 << 22).sum()))"]
)
def test_a_process_that_never_loads_hvd(code):
    environment = launching.clean_environment(LD_PRELOAD=str(heap.find()))
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_without_a_launcher_the_variable_and_the_library_do():
    code = """
import horovod.numpy as hvd, numpy as np
hvd.init()
array = np.empty(1 << 20, np.uint8)
ranges = [line.split()[0].split("-") for line in open("/proc/self/maps") if "memfd:hvd-arena" in line]
print(any(int(begin, 16) <= array.ctypes.data < int(end, 16) for begin, end in ranges))
"""
    for kind, answer in (("arena", "True\n"), ("system", "False\n")):
        environment = launching.clean_environment(LD_PRELOAD=str(heap.find()), HOROVOD_HEAP=kind)
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == answer


def test_a_wrong_word_is_named():
    for words in (("--heap", "stack"), ("-x", "HOROVOD_HEAP=stack")):
        done = launching.horovodrun("-np", "1", *words, "true")
        assert done.returncode == 2
        assert "arena system" in done.stderr
