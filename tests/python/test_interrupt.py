# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends whatever waits for a peer, and leaves nothing behind that could do harm."""

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref

import horovod.numpy as hvd
import numpy as np
import pytest
import spawn
from horovod.common import library, objects, request
from ranks import on_ranks

# Python sees a signal when it gets its turn; what is tested here hangs for an hour where it never does.
HEAD = """
import os, signal, subprocess, sys, threading
import numpy as np, horovod.numpy as hvd

def interrupted(function):
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        function()
    except KeyboardInterrupt:
        return True
    return False
"""


def start_rank(code, rank, address, **env):
    env = dict(os.environ, HOROVOD_START_TIMEOUT="3600", PYTHONUNBUFFERED="1", **env)
    env.update(HOROVOD_RANK=str(rank), HOROVOD_SIZE="2", HOROVOD_RENDEZVOUS_ADDR=address)
    command = [sys.executable, "-c", HEAD + code]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def outputs(*processes):
    """Wait for all and return what they wrote; kill what hangs."""
    try:
        return [process.communicate(timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def address():
    return f"127.0.0.1:{spawn.free_port()}"


def test_init_while_its_thread_starts():
    code = """
from types import SimpleNamespace
from horovod.common import starting
class Interrupted(threading.Thread):
    def start(self):
        super().start()
        raise KeyboardInterrupt
starting.threading = SimpleNamespace(Thread=Interrupted, Event=threading.Event, Lock=threading.Lock)
try:
    hvd.init()
except KeyboardInterrupt:
    print("under way:", starting.under_way())
"""
    assert outputs(start_rank(code, 0, address())) == ["under way: True\n"]


def test_synchronize():
    code = """
from horovod.common import request, abi
class Stuck:
    def hvd_wait(self, *_): return abi.IN_PROGRESS
request.load = lambda: Stuck()
request._pending[5] = None
print(interrupted(lambda: hvd.synchronize(5)))
"""
    assert outputs(start_rank(code, 0, "")) == ["True\n"]


def test_init_that_waits_for_an_absent_rank():
    code = """
print(interrupted(hvd.init), hvd.is_initialized())
hvd.shutdown()
print(interrupted(hvd.init), hvd.is_initialized())
print(interrupted(lambda: hvd.init(process_sets=[[0]])))
"""
    rank = start_rank(code, 0, address())
    assert outputs(rank) == ["True False\nTrue False\nTrue\n"]
    assert rank.returncode == 0


def test_a_program_that_is_interrupted_in_init_ends_like_any_other():
    rank = start_rank("threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()\nhvd.init()", 0, address())
    (text,) = outputs(rank)
    assert text.endswith("KeyboardInterrupt\n")
    assert rank.returncode == -2


def test_init_after_an_interrupted_one_joins_the_same_job():
    where = address()
    first = start_rank(
        """
print(interrupted(hvd.init))
print("ready")
input()
hvd.init()
print(hvd.allreduce(1.0, op=hvd.Sum))
""",
        0,
        where,
    )
    assert first.stdout.readline() == "True\n"
    assert first.stdout.readline() == "ready\n"
    first.stdin.write("go\n")
    first.stdin.flush()
    second = start_rank("hvd.init(); print(hvd.allreduce(1.0, op=hvd.Sum))", 1, where)
    assert outputs(first, second) == ["2.0\n", "2.0\n"]


def test_a_rank_that_gave_up_leaves_the_job_when_the_others_come():
    where = address()
    first = start_rank("print(interrupted(hvd.init))\ninput()\nprint(hvd.is_initialized())", 0, where)
    assert first.stdout.readline() == "True\n"
    second = start_rank(
        """
hvd.init()
try:
    hvd.allreduce(1.0)
except hvd.HorovodInternalError as error:
    print("rank 0 left" in str(error))
""",
        1,
        where,
    )
    assert outputs(second) == ["True\n"]
    assert first.communicate("go\n", timeout=60)[0] == "False\n"


@on_ranks(2)
def test_memory_of_an_operation_whose_handle_was_lost_is_kept_until_it_is_over():
    if hvd.rank() == 0:
        engine = library.load()

        class Interrupted:
            def hvd_submit(self, *arguments):
                assert engine.hvd_submit(*arguments) == 0
                raise KeyboardInterrupt

            def __getattr__(self, name):
                return getattr(engine, name)

        array = np.ones(100)
        seen = weakref.ref(array)
        request.load = Interrupted
        with pytest.raises(KeyboardInterrupt):
            hvd.allreduce_async_(array, op=hvd.Sum, name="lost")
        request.load = library.load
        del array
        gc.collect()
        assert (seen() == 1).all()
    hvd.barrier()
    if hvd.rank() == 1:
        assert (hvd.allreduce(np.ones(100), op=hvd.Sum, name="lost") == 2).all()
    hvd.barrier()
    if hvd.rank() == 0:
        while seen() is not None:  # over on rank 1, so here, too, or in a moment
            request._sweep()
            gc.collect()


BLOCKING = {
    "allreduce": lambda array: hvd.allreduce(array, op=hvd.Sum, name="x"),
    "allreduce_": lambda array: hvd.allreduce_(array, op=hvd.Sum, name="x"),
    "allgather": lambda array: hvd.allgather(array, name="x"),
    "broadcast": lambda array: hvd.broadcast(array, 1, name="x"),
    "broadcast_": lambda array: hvd.broadcast_(array, 1, name="x"),
    "broadcast_parameters": lambda array: hvd.broadcast_parameters([("x", array)], 1),
    "broadcast_object": lambda array: hvd.broadcast_object(array, 1, name="x"),
    "allgather_object": lambda array: hvd.allgather_object(array, name="x"),
    "barrier": lambda array: hvd.barrier(),
    "alltoall": lambda array: hvd.alltoall(array, splits=[400, 600], name="x"),
    "reducescatter": lambda array: hvd.reducescatter(array, name="x"),
    "adasum": lambda array: hvd.allreduce(array, op=hvd.Adasum, name="adasum"),
    "grouped_allreduce": lambda array: hvd.grouped_allreduce([array, [1]], name="x"),
    "grouped_allreduce_": lambda array: hvd.grouped_allreduce_([array], name="y"),
    "grouped_allgather": lambda array: hvd.grouped_allgather([[1], array], name="x"),
    "grouped_reducescatter": lambda array: hvd.grouped_reducescatter([array, [1.0, 2.0]], name="x"),
}

FIRST_PART = {
    "broadcast_object": lambda _: hvd.broadcast(np.zeros(objects._HEAD_WORDS, np.int64), 1, name="x.sz"),
    "allgather_object": lambda _: hvd.allgather(np.zeros(objects._HEAD_WORDS, np.int64), name="x.sz"),
}


@on_ranks(2)
def test_blocking_calls_that_wait_for_a_peer():
    for warm in (False, True):  # a name that is new, and one that is agreed upon
        for name, call in BLOCKING.items():
            array = np.full(1000, float(hvd.rank()))
            if warm:
                call(array)
            hvd.allgather([0], name=f"{name} ready {warm}")
            if hvd.rank() == 0:
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
                with pytest.raises(KeyboardInterrupt):
                    call(array)
                seen = weakref.ref(array)
                del array
                gc.collect()
                # An object's second part was never submitted: the first is enough for what is tested here.
                assert seen() is not None or "object" in name or name == "barrier"
            hvd.allgather([0], name=f"{name} go {warm}")
            if hvd.rank() == 1:
                FIRST_PART.get(name, call)(array)
            hvd.allgather([0], name=f"{name} over {warm}")
            while hvd.rank() == 0 and request._left:
                request._sweep()
            assert not request._pending


@on_ranks(2, env={"OPENBLAS_NUM_THREADS": "1"})
def test_signals_are_for_the_threads_of_the_program():
    """It blocks them in its own threads to wait for them: were they open in any other, that one would die of them."""
    hvd.allreduce(1.0, name="a")
    wanted = {signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM}
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    for signo in wanted:
        os.kill(os.getpid(), signo)
        assert signal.sigtimedwait({signo}, 20).si_signo == signo
    assert hvd.allreduce(1, op=hvd.Sum, name="b") == 2
