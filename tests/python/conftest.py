# SPDX-License-Identifier: Apache-2.0
"""Makes the helpers beside the tests importable, and gives tests that need no peers an engine."""

import pathlib
import signal
import sys

import horovod.numpy as hvd
import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "tools")]

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
