# SPDX-License-Identifier: Apache-2.0
"""horovod.tensorflow and the life of its process: loading, exit, loss of a peer, children."""

import shutil
import signal
import subprocess
import sys
import textwrap

import pytest
from spawn import spawn

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


def ranks(number, script, timeout=120):
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return spawn(command, number, env=QUIET, timeout=timeout, preloaded="tensorflow")


def alone(script, **more):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **more,
    )


@pytest.mark.row("e22", "k18")
def test_the_loss_of_a_peer_is_an_error_that_names_it_in_eager_code_and_functions():
    results = ranks(
        2,
        """
        import os, signal, threading
        import tensorflow as tf
        import horovod.tensorflow as hvd
        hvd.init()
        step = tf.function(lambda x: hvd.allreduce(x, name="x"))
        step(tf.ones([2]))
        if hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        for run in (step, lambda x: hvd.allreduce(x, name="eager")):
            try:
                while True:
                    run(tf.ones([2]))
            except tf.errors.UnknownError as error:
                assert "Horovod has been shut down" in str(error) and "rank 1" in str(error), error
                print("told")
        """,
    )
    assert results[0].returncode == 0, results[0].output
    assert results[0].output.count("told") == 2
    assert results[1].returncode == -signal.SIGKILL


@pytest.mark.row("k24")
def test_exit_with_an_operation_that_nobody_answers():
    results = ranks(
        2,
        """
        import threading, time
        import tensorflow as tf
        import horovod.tensorflow as hvd
        hvd.init()
        step = tf.function(lambda x: hvd.allreduce(x, name="x"))
        if hvd.rank() == 0:
            threading.Thread(target=lambda: step(tf.ones([2])), daemon=True).start()
            time.sleep(1.0)
        """,
    )
    assert [result.returncode for result in results] == [0, 0], [result.output for result in results]


def test_a_second_copy_of_the_library_registers_nothing_and_breaks_nothing(tmp_path):
    from horovod.common import library

    path = library._find().with_name("libhvd_tensorflow.so")
    copy = tmp_path / path.name
    shutil.copy(path, copy)
    done = alone(
        f"""
        import ctypes
        import tensorflow as tf
        import horovod.tensorflow as hvd
        hvd.init()
        tf.load_op_library({str(copy)!r})
        problem = ctypes.CDLL({str(copy)!r}).hvd_tensorflow_problem
        problem.restype = ctypes.c_char_p
        assert b"another copy is loaded already" in problem(), problem()
        assert hvd.allreduce(tf.ones([2])).numpy().tolist() == [1.0, 1.0]
        """
    )
    assert done.returncode == 0, done.stderr


def test_a_tensorflow_that_is_too_old_is_named(tmp_path):
    (tmp_path / "tensorflow.py").write_text('__version__ = "2.12.1"\n')
    done = alone(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import horovod.tensorflow as hvd; hvd.init()")
    assert "horovod.tensorflow needs TensorFlow 2.13 or newer, and this is 2.12.1" in done.stderr


@pytest.mark.row("a1", "k23")
def test_before_init_after_shutdown_and_in_a_child_calls_say_so():
    done = alone(
        """
        import os
        import tensorflow as tf
        import horovod.tensorflow as hvd
        x = tf.ones([2])
        step = tf.function(lambda x: hvd.allreduce(x, name="x"))

        def fails(kind, text, call=lambda: hvd.allreduce(x)):
            try:
                call()
            except kind as error:
                assert text in str(error), error
            else:
                raise AssertionError("no error")

        for _ in range(2):
            fails(ValueError, "hvd.init()", hvd.size)
            fails(Exception, "has not been initialized")
            fails(tf.errors.FailedPreconditionError, "has not been initialized", lambda: step(x))
            hvd.init()
            hvd.init()
            assert step(x).numpy().tolist() == [1.0, 1.0]
            child = os.fork()
            if child == 0:
                try:
                    fails(Exception, "forked")
                except BaseException:
                    os._exit(1)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            hvd.shutdown()
        """
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.row("e19")
def test_import_horovod_does_not_import_tensorflow():
    done = alone("import sys, horovod; assert 'tensorflow' not in sys.modules")
    assert done.returncode == 0, done.stderr


def test_completions_can_be_taken_off_the_stack_of_this_tensorflow():
    """A TensorFlow that fails here is built in a way that is not known: each collective would hold a thread of it."""
    done = alone(
        """
        import tensorflow as tf
        import horovod.tensorflow as hvd
        hvd.init()
        step = tf.function(lambda x: hvd.allreduce(x) + hvd.allreduce(2 * x))
        assert step(tf.ones([2])).numpy().tolist() == [3.0, 3.0]
        """
    )
    assert done.returncode == 0, done.stderr
    assert "holds one of its threads" not in done.stderr
