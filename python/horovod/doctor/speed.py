# SPDX-License-Identifier: Apache-2.0
"""How fast two ranks of this machine are, by hvd_perf: the program that all other figures of speed come from."""

from __future__ import annotations

import json
import pathlib
import subprocess
import tempfile

from horovod import perf

_SMALL, _LARGE = 4, 8 << 20
_PATIENCE = 60


def measure_here() -> list[list] | None:
    """
    Return [[0, 1, microseconds, MB/s]] for two ranks here; None where hvd_perf is not there or does not run.

    The microseconds are those of an allreduce of 4 bytes, the MB/s those of a broadcast of 8 MiB; both are medians.

    >>> pairs = measure_here()
    >>> pairs is None or pairs[0][2] > 0
    True
    """
    program = perf.find()
    if program is None:
        return None
    small = _median_us(str(program), "allreduce", _SMALL)
    large = _median_us(str(program), "broadcast", _LARGE)
    if small is None or large is None:
        return None
    return [[0, 1, small, _LARGE / large]]


def _median_us(program: str, operation: str, size: int) -> float | None:
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out.json")
        words = ["--op", operation, "--sizes", str(size), "--json", str(out)]
        try:
            done = subprocess.run(
                [program, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE,
                check=False,
            )
            (row,) = json.loads(out.read_text())["rows"] if done.returncode == 0 else (None,)
        except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
            return None
    return None if row is None else float(row["median_us"])
