# SPDX-License-Identifier: Apache-2.0
"""Makes the helpers beside the tests importable, gives tests that need no peers an engine, counts rows of features."""

import pathlib
import signal
import sys

import horovod.numpy as hvd
import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "tools")]

import rows  # noqa: E402

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


def _rows_of(item):
    return [row for mark in item.iter_markers("row") for row in mark.args]


def pytest_collection_modifyitems(items):
    for item in items:
        _count.claim(item.nodeid, _rows_of(item))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when == "call" or report.failed:
        _count.outcome(_rows_of(item), report.passed)


def pytest_terminal_summary(terminalreporter):
    if _count.any:
        terminalreporter.section("features")
        for line in _count.lines():
            terminalreporter.write_line(line)
