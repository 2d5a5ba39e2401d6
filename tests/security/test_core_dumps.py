# SPDX-License-Identifier: Apache-2.0
"""A core file has none of the memory that ranks share: its holes would fill memory and disk, and take minutes."""

import re
import resource
import sys

import launching
import spawn

CODE = """
import numpy as np, horovod.numpy as hvd
hvd.init()
array = hvd.empty(1 << 20, np.float32)
hvd.allreduce_(array)
print(open("/proc/self/smaps").read())
hvd.barrier()
"""


def test_shared_memory_is_in_no_core_file():
    for output in spawn.run([sys.executable, "-c", CODE], 2):
        # Each mapping is a line with its file, lines with numbers, and a line with its flags.
        flags = re.findall(r"memfd:hvd-(\w+)(?:.*\n)*?VmFlags: (.*)", output)
        assert {name for name, _ in flags} == {"control", "arena"}
        assert len(flags) >= 3, "the control segment, this rank's arena and its peer's"
        assert all("dd" in found.split() for _, found in flags), flags


# Large enough that writing the core takes longer than the grace period.
CRASH = """
import os, signal, sys, numpy as np, horovod.numpy as hvd
os.chdir(sys.argv[1])
hvd.init()
ballast = np.ones(25 << 20)
hvd.barrier()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGSEGV)
hvd.barrier()
"""


def test_horovodrun_waits_for_a_core_and_reports_the_crash(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limits[1], limits[1]))
    try:
        result = launching.horovodrun("-np", 2, "--grace-period", 0, sys.executable, "-c", CRASH, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)
    assert "rank 1 was ended by signal 11 (SIGSEGV)" in result.stderr, result.stderr
    # Where the kernel hands cores to a program, there is no file.
    for core in tmp_path.glob("core*"):
        assert core.stat().st_size > 8 * 25 << 20, "it was cut off"
