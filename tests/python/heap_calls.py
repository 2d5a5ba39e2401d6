# SPDX-License-Identifier: Apache-2.0
"""Every function of the malloc family on a rank with the arena heap. Prints "right" at the end."""

import concurrent.futures
import ctypes
import multiprocessing
import subprocess
import sys
import threading

import horovod.numpy as hvd
import numpy as np

libc = ctypes.CDLL(None)
for name in ("malloc", "calloc", "realloc", "memalign", "aligned_alloc", "valloc", "reallocarray"):
    getattr(libc, name).restype = ctypes.c_void_p
libc.malloc_usable_size.restype = ctypes.c_size_t
MIB = 1 << 20


def call(name: str, *arguments: object) -> int:
    words = [ctypes.c_void_p(a) if isinstance(a, int) and a > 1 << 40 else ctypes.c_size_t(a) for a in arguments]
    address = getattr(libc, name)(*words)
    assert address, name
    return address


def free(address: int) -> None:
    libc.free(ctypes.c_void_p(address))


def arena() -> tuple[int, int]:
    """Return the addresses of this rank's arena."""
    with open("/proc/self/maps") as maps:
        ranges = [line.split()[0].split("-") for line in maps if "memfd:hvd-arena" in line]
    return min((int(begin, 16) for begin, _ in ranges), default=0), max((int(end, 16) for _, end in ranges), default=0)


def in_arena(address: int) -> bool:
    begin, end = arena()
    return begin <= address < end


def text(address: int, count: int) -> bytes:
    return ctypes.string_at(address, count)


def check_family() -> None:
    small, large = call("malloc", 1000), call("malloc", MIB)
    assert not in_arena(small)
    assert in_arena(large)
    assert libc.malloc_usable_size(ctypes.c_void_p(large)) >= MIB
    ctypes.memset(large, 7, MIB)
    grown = call("realloc", large, 5 * MIB)
    assert text(grown, MIB) == b"\7" * MIB
    shrunk = call("realloc", grown, 1000)
    assert text(shrunk, 1000) == b"\7" * 1000
    assert not in_arena(shrunk)
    ctypes.memset(small, 9, 1000)
    raised = call("realloc", small, 2 * MIB)
    assert text(raised, 1000) == b"\t" * 1000
    array = call("reallocarray", raised, 3, MIB)
    assert text(array, 1000) == b"\t" * 1000
    free(shrunk)
    free(array)
    for _ in range(3):  # what was used before is zeroed
        zeros = call("calloc", 3, MIB)
        assert text(zeros, 3 * MIB) == bytes(3 * MIB)
        ctypes.memset(zeros, 1, 3 * MIB)
        free(zeros)
    for alignment in (64, 4096, 2 * MIB):
        for name in ("memalign", "aligned_alloc"):
            block = call(name, alignment, 4 * MIB)
            assert block % alignment == 0
            free(block)
        place = ctypes.c_void_p()
        assert libc.posix_memalign(ctypes.byref(place), ctypes.c_size_t(alignment), ctypes.c_size_t(MIB)) == 0
        assert place.value % alignment == 0
        free(place.value)
    assert libc.posix_memalign(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(3), ctypes.c_size_t(MIB)) != 0
    free(call("valloc", MIB))
    libc.free(None)
    assert libc.calloc(ctypes.c_size_t(1 << 62), ctypes.c_size_t(8)) is None
    huge = libc.malloc(ctypes.c_size_t(1 << 60))
    assert huge is None


def churn(seed: int) -> None:
    random = np.random.default_rng(seed)
    kept: list[np.ndarray] = []
    for _ in range(200):
        array = np.full(int(random.integers(1, 600_000)), seed, np.uint8)
        kept.append(array)
        if len(kept) > 8:
            victim = kept.pop(int(random.integers(len(kept))))
            assert victim[0] == victim[-1] == seed


def total(array: np.ndarray) -> int:
    array += 1
    return int(array.sum())


def check_processes() -> None:
    array = np.ones(MIB, np.uint8)
    for method in ("fork", "forkserver"):
        context = multiprocessing.get_context(method)
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            assert list(pool.map(total, [array] * 4)) == [2 * MIB] * 4
    assert (array == 1).all()
    done = subprocess.run([sys.executable, "-c", "print(len(bytearray(1 << 20)))"], capture_output=True, check=True)
    assert int(done.stdout) == MIB


def main() -> None:
    before = np.full(MIB, 5, np.uint8)
    hvd.init()
    check_family()
    threads = [threading.Thread(target=churn, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check_processes()
    after = np.full(MIB, 6, np.uint8)
    assert in_arena(after.ctypes.data)
    assert (hvd.allreduce(after, op=hvd.Max, name="after") == 6).all()
    assert (hvd.allreduce_(before, op=hvd.Max, name="before") == 5).all()
    hvd.shutdown()
    assert in_arena(np.empty(MIB, np.uint8).ctypes.data)
    del before, after
    threading.Thread(target=churn, args=(9,), daemon=True).start()  # still at work when the process exits
    print("right", flush=True)


if __name__ == "__main__":
    main()
