# SPDX-License-Identifier: Apache-2.0
"""
Makes the helpers in tests/python importable, gives tests that need no peers an engine, and counts the rows of features
that tests show.

All tests together run side by side, in a process per core and one more, for many of them wait: files as a whole, so
that their tests can share a start, a fixture or a port. Tests that are named run here.
"""

import os
import pathlib
import signal
import sys

import horovod.numpy as hvd
import pytest

HERE = pathlib.Path(__file__).resolve().parent
# pytest put this folder there, and ranks get their path from it: its folders jax, ray and torch are not those packages.
sys.path[:] = [folder for folder in sys.path if folder != str(HERE)]
sys.path[:0] = [str(HERE / "python"), str(HERE.parent / "tools")]

import preloaded  # noqa: E402
import rows  # noqa: E402

# These files take longest. They begin first, so that no process is left with one of them when the others have ended.
LONGEST = (
    "test_keras_training.py",
    "test_keras_optimizer.py",
    "test_tensorflow_launchers.py",
    "test_failure.py",
    "test_reading.py",
    "test_hosts.py",
    "test_jobs.py",
    "test_data_service_examples.py",
    "test_keras_callbacks.py",
    "test_training.py",
    "test_tensorflow_training.py",
    "test_strategy_examples.py",
    "test_keras_one_process.py",
    "test_cpp_install.py",
    "test_tensorflow_ops.py",
    "test_mpi_operations.py",
    "test_tensorflow_examples.py",
    "test_keras_examples.py",
    "test_ranks.py",
    "test_stall.py",
    "test_strategy.py",
    "test_tensorflow_v1.py",
    "test_launch_hosts_failures.py",
    "test_mpi.py",
)

_count = rows.Count()

# Started in the background, this and all that it starts would ignore them.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def engine():
    """A job of this process alone."""
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture
def no_engine():
    """Surely not initialised."""
    hvd.shutdown()


def pytest_configure():
    preloaded.home()  # so that all processes of this run share its servers


def pytest_xdist_auto_num_workers(config):
    return (os.cpu_count() or 1) + 1 if config.args_source is config.ArgsSource.TESTPATHS else 0


def _rows_of(item):
    return [row for mark in item.iter_markers("row") for row in mark.args]


def pytest_collection_modifyitems(items):
    for item in items:
        _count.claim(item.nodeid, _rows_of(item))
    # Files go to processes in this order.
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    report = (yield).get_result()
    report.rows = _rows_of(item)  # travels with the report to the process that counts


def pytest_runtest_logreport(report):
    if report.when == "call" or report.failed:
        _count.outcome(getattr(report, "rows", ()), report.passed)


def pytest_terminal_summary(terminalreporter, config):
    if config.args_source is config.ArgsSource.TESTPATHS:
        terminalreporter.section("features")
        for line in _count.lines():
            terminalreporter.write_line(line)
