# SPDX-License-Identifier: Apache-2.0
"""A rank overwrites one word of a mark in shared memory: all ranks end with an error, instead of waiting for ever."""

import re
import sys

import pytest
import spawn

CODE = """
import ctypes, os, re, sys, time
import numpy as np, horovod.numpy as hvd
word, flag, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
hvd.init()

def control():
    found = re.search(r"(\\\\w+)-(\\\\w+) rw-s .*memfd:hvd-control", open("/proc/self/maps").read())
    begin, end = (int(text, 16) for text in found.groups())
    return begin, np.ctypeslib.as_array((ctypes.c_uint64 * (min(end - begin, 16 << 20) // 8)).from_address(begin))

try:
    for _ in range(5):
        hvd.allreduce(np.ones(count), name="a")
    if hvd.rank() == 1:
        _, words = control()
        before = words.copy()
        handle = hvd.allreduce_async(np.ones(count), name="a")
        # A mark's echo is 18 words after it; see collective/window/mark_stream.h.
        marks = []
        while not marks:
            changed = np.flatnonzero(words[:-18] != before[:-18])
            marks = [at for at in changed if words[at] != 0 and words[at] == words[at + 18] != before[at + 18]]
            time.sleep(0.01)
        words[marks[0] + word] ^= np.uint64(0x123456789abcdef0)
        open(flag, "w").close()
        hvd.synchronize(handle)
    else:
        while not os.path.exists(flag):
            time.sleep(0.01)
        hvd.allreduce(np.ones(count), name="a")
    print("DONE")
except hvd.HorovodInternalError as error:
    print("ERROR", error)
"""


# mark, uid, first_dim, place and check, where the data is or the data itself, echo
@pytest.mark.parametrize(("word", "count"), [(0, 2), (1, 2), (2, 2), (3, 100_000), (4, 100_000), (18, 2)])
def test_a_damaged_mark_ends_in_an_error(word, count, tmp_path):
    env = {"HOROVOD_HEARTBEAT_TIMEOUT_SECONDS": "2", "HOROVOD_OP_TIMEOUT_SECONDS": "30"}
    command = [sys.executable, "-c", CODE.replace("\\\\", "\\"), str(word), str(tmp_path / "flag"), str(count)]
    results = spawn.spawn(command, 2, env=env, timeout=50)
    first = results[0].output
    if word == 18 and "DONE" in first:
        return  # only who waits looks at the echo, and nobody had to
    assert "of rank 1 in shared memory is damaged" in first or "mark into shared memory that is damaged" in first, first
    # The rank that did it may see nothing of it.
    assert re.search("^(ERROR|DONE)", results[1].output, re.MULTILINE)
    assert not any(result.killed for result in results)
