# SPDX-License-Identifier: Apache-2.0
"""
Seeded programs that allocate, fork, write on both sides and reduce: ``heap_program.py FIRST COUNT``.

Rank 0 prints one line per seed: a digest of everything that parent and child have seen. It depends on the seed alone,
so two heaps that are both right print the same lines.
"""

import hashlib
import os
import random
import sys

import horovod.numpy as hvd
import numpy as np

SIZES = (1000, 70_000, 300_000, 1_100_000, 3_000_000)  # elements of a byte


def allocate(choice: random.Random) -> np.ndarray:
    count = choice.choice(SIZES) + choice.randrange(64)
    array = choice.choice((np.empty, np.zeros, np.ones))(count, np.uint8)
    if choice.random() < 0.7:
        array[:] = choice.randrange(256)
    elif not array.flags.owndata or choice.random() < 0.5:
        array = np.arange(count).astype(np.uint8)
    else:
        array[:] = 7
    return array


def write(arrays: list[np.ndarray], choice: random.Random) -> None:
    for array in arrays:
        begin = choice.randrange(len(array))
        array[begin : begin + choice.randrange(1, 200_000)] = choice.randrange(256)


def digest(arrays: list[np.ndarray]) -> bytes:
    return hashlib.sha256(b"".join(hashlib.sha256(array).digest() for array in arrays)).digest()


def forked(arrays: list[np.ndarray], seed: int) -> bytes:
    """Fork a child; both write, each sees its own writes alone. Returns what the child saw."""
    from_child, to_parent = os.pipe()
    from_parent, to_child = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.read(from_parent, 1)  # the parent has written
            before = digest(arrays)
            write(arrays, random.Random(seed * 2 + 1))
            del arrays[::2]
            fresh = np.full(400_000, 3, np.uint8)
            os.write(to_parent, hashlib.sha256(before + digest([*arrays, fresh])).digest())
            code = 0
        finally:
            os._exit(code)
    write(arrays, random.Random(seed * 2))
    os.write(to_child, b"x")
    answer = os.read(from_child, 32)
    assert os.waitpid(child, 0)[1] == 0
    for fd in (from_child, to_parent, from_parent, to_child):
        os.close(fd)
    return answer


def run(seed: int) -> str:
    choice = random.Random(seed)
    arrays = [allocate(choice) for _ in range(choice.randrange(1, 5))]
    seen = [forked(arrays, seed)]
    for number, array in enumerate(arrays):
        if choice.random() < 0.5:
            hvd.allreduce_(array, op=hvd.Max, name=f"in place {number} {len(array)}")
        else:
            arrays[number] = hvd.allreduce(array, op=hvd.Sum, name=f"new {number} {len(array)}")
    if choice.random() < 0.3:
        seen.append(forked(arrays, seed + 1))
    if choice.random() < 0.3:
        arrays.append(hvd.allgather(arrays[0]))
    seen.append(digest(arrays))
    return hashlib.sha256(b"".join(seen)).hexdigest()


if __name__ == "__main__":
    hvd.init()
    for seed in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
        line = run(seed)
        if hvd.rank() == 0:
            print(seed, line, flush=True)
