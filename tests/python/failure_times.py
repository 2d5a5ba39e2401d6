# SPDX-License-Identifier: Apache-2.0
"""
How long a job of four takes to be gone when one rank fails, again and again; no part of the tests.

    python tests/python/failure_times.py [REPETITIONS]

For each cause: whether exit code and report were right, nothing was left, and all was over within detection (0.2 s, the
heartbeat, or the start time-out) + grace period + 1 s of the failure.
"""

from __future__ import annotations

import pathlib
import statistics
import sys
import tempfile
import time

import launching

HEARTBEAT, START, GRACE = 2.0, 6.0, 2.0

TRAINING = """
import os, signal, sys, time
import numpy as np, horovod.numpy as hvd
how, folder, rank = sys.argv[1], sys.argv[2], int(os.environ["HOROVOD_RANK"])
def note(name):
    with open(f"{folder}/{name}.{rank}", "w") as file: file.write(f"{os.getpid()} {time.monotonic()}")
if rank == 2 and how == "hangs before init":
    note("pid")
    time.sleep(1000)
note("pid")
hvd.init()
array = np.ones(1000)
hvd.allreduce(array, name="a")
if rank == 2:
    note("failure")
    if how == "raises": raise ValueError("no luck")
    if how == "exits 3": sys.exit(3)
    if how == "SIGKILL": os.kill(os.getpid(), signal.SIGKILL)
    if how == "is stopped": os.kill(os.getpid(), signal.SIGSTOP)
while True:
    hvd.allreduce(array, name="a")
"""

# Detection, exit code, and what the report says of the rank.
CAUSES = {
    "raises": (0.2, 1, {"exit_code": 1}),
    "exits 3": (0.2, 3, {"exit_code": 3}),
    "SIGKILL": (0.2, 137, {"signal_name": "SIGKILL"}),
    "is stopped": (HEARTBEAT, 1, {"silent": True}),
    "hangs before init": (START, 1, {"silent": True}),
}


def once(how: str) -> tuple[float, str]:
    """Return seconds from failure to end, and what was wrong."""
    detection, code, end = CAUSES[how]
    with tempfile.TemporaryDirectory(prefix="hvd-") as name:
        folder = pathlib.Path(name)
        flags = ["--json", "--grace-period", f"{GRACE:g}", "--start-timeout", f"{START if 'init' in how else 60:g}"]
        result = launching.horovodrun(
            *("-np", "4", *flags, sys.executable, "-c", TRAINING, how, folder),
            env={"HOROVOD_HEARTBEAT_TIMEOUT_SECONDS": f"{HEARTBEAT:g}"},
        )
        over = time.monotonic()
        notes = {file.name: file.read_text().split() for file in folder.iterdir()}
    # Those who wait for a rank that hangs begin when they come to init.
    began = min(float(when) for name, (_, when) in notes.items() if name != "pid.2")
    took = over - (began if "init" in how else float(notes["failure.2"][1]))
    first = launching.report(result).get("first", {})
    wrong = []
    if result.returncode != code:
        wrong.append(f"exit code {result.returncode}")
    if first.get("rank") != 2 or first != {**first, **end}:
        wrong.append(f"report {first}")
    if any(launching.is_alive(int(pid)) for pid, _ in notes.values()):
        wrong.append("processes left")
    if took > detection + GRACE + 1:
        wrong.append(f"{took:.2f} s")
    return took, ", ".join(wrong)


def main() -> int:
    """Command line."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    failures = 0
    for how, (detection, _, _) in CAUSES.items():
        runs = [once(how) for _ in range(count)]
        wrong = [why for _, why in runs if why]
        failures += len(wrong)
        times = [took for took, _ in runs]
        print(
            f"{how:18} right {count - len(wrong)}/{count}, gone after median {statistics.median(times):.2f} s, "
            f"longest {max(times):.2f} s, bound {detection + GRACE + 1:.1f} s",
            *wrong,
            sep="\n    ",
            flush=True,
        )
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
