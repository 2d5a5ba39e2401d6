# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends whatever waits for a peer."""

import subprocess
import sys


def test_control_c_ends_a_wait():
    code = """
import os, signal, threading
import horovod.numpy as hvd
from horovod.common import request, abi
class Stuck:
    def hvd_wait(self, *_): return abi.IN_PROGRESS
request.load = lambda: Stuck()
request._pending[5] = None
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    hvd.synchronize(5)
except KeyboardInterrupt:
    print("interrupted")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert result.stdout == "interrupted\n", result.stderr
