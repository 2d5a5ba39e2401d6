# SPDX-License-Identifier: Apache-2.0
"""Be one rank of all tests of operations, one after the other: see test_mpi_operations.py."""

import os
import pathlib
import sys
import time

import ranks

HERE = pathlib.Path(__file__).resolve().parent
FILES = ["ranks", "alltoall", "reducescatter", "grouped", "join", "adasum", "barrier", "dynamic_sets", "parameters"]
# Some tests name a file after the place where the ranks meet.
NEEDS_PLACE = "test_ctrl_c"


def tests(size: int):
    """Give the module and the test of each that runs on so many ranks, without time-outs."""
    for name in FILES:
        module = ranks.load(str(HERE / f"test_{name}.py"))
        for title, test in list(module.__dict__.items()):
            if size not in getattr(test, "counts", ()) or title.startswith(NEEDS_PLACE):
                continue
            if not any("TIMEOUT" in variable or "SHM" in variable for variable in test.env):
                yield module, title, test


def main() -> None:
    """Run them all."""
    # Some of the tests look at these; they may be set if they say the same as the launcher.
    os.environ["HOROVOD_RANK"] = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]
    os.environ["HOROVOD_SIZE"] = os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ["PMI_SIZE"]
    size = int(os.environ["HOROVOD_SIZE"])
    count = 0
    for module, title, test in tests(size):
        before, began = dict(os.environ), time.monotonic()
        os.environ.update(test.env)
        try:
            ranks.run_body(module, test, size)
        except BaseException:
            print(f"in {module.__name__} {title}", file=sys.stderr, flush=True)
            raise
        for name in test.env:
            os.environ.pop(name)
        os.environ.update(before)
        count += 1
        if "-v" in sys.argv:
            print(f"{time.monotonic() - began:6.2f} s {title}", flush=True)
    os.write(1, f"{count} tests\n".encode())


if __name__ == "__main__":
    main()
