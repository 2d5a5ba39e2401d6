# SPDX-License-Identifier: Apache-2.0
"""Makes the helpers beside the tests importable, and gives tests that need no peers an engine."""

import pathlib
import signal
import sys

import horovod.numpy as hvd
import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "tools")]

# A shell that starts this in the background makes it, and all that it starts, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
