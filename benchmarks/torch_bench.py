#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures horovod.torch beside torch.distributed over Gloo: allreduces and training steps of 2 ranks.

Both take turns inside one launch. Needs torch in this Python: build/suites/torch/bin/python benchmarks/torch_bench.py
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# How many times as fast as its peer a line is meant to be.
_ARENA, _OPTIMIZER = "in place, named, arena", "horovod.torch"
GOALS = {
    ("10 floats", _ARENA): 50,
    ("64 KiB", _ARENA): 40,
    ("4 MiB", _ARENA): 20,
    ("10 floats", "backend hvd"): 10,
    ("MLP, 64 MiB", _OPTIMIZER): 1.8,
    ("MLP, 7.5 MB", _OPTIMIZER): 1.5,
    ("CNN", _OPTIMIZER): 0.95,
    ("122 tensors, 1 MB", _OPTIMIZER): 0.95,
}


def launch(what: str, seconds: float) -> dict:
    """Run 2 ranks and return what rank 0 measured."""
    horovodrun = Path(sys.executable).parent / "horovodrun"
    command = [horovodrun, "-np", "2", sys.executable, ROOT / "benchmarks" / "torch_rank.py", what, str(seconds)]
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, HVD_BENCH_STORE=f"{folder}/store", OMP_NUM_THREADS="1")
        done = subprocess.run(command, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    for line in done.stdout.splitlines():
        if "RESULT " in line:
            return json.loads(line.split("RESULT ", 1)[1])
    sys.exit(f"{what} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


def table(found: dict, peer: str, unit: str, divisor: float) -> str:
    """Return a table in Markdown: best median, then p5 for calls and p10 for steps."""
    low = "p5" if unit == "µs" else "p10"
    lines = [f"| {unit}: best round's median, median, {low} | | | | peer / this |", "|---|---:|---:|---:|---:|"]
    for label, variants in found.items():
        for name, numbers in variants.items():
            cells = [f"{numbers[key] / divisor:.1f}" for key in ("best", "median", low)]
            ratios = [variants[peer][key] / numbers[key] for key in ("best", "median", low)]
            goal = f", meant: {GOALS[label, name]}" if (label, name) in GOALS else ""
            lines.append(
                f"| {label}: {name} | {' | '.join(cells)} | {' '.join(f'{one:.2f}' for one in ratios)}{goal} |"
            )
    return "\n".join(lines)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="for each line of a table")
    parser.add_argument("--only", choices=("calls", "steps"))
    options = parser.parse_args()
    if options.only != "steps":
        found = launch("calls", options.seconds)
        print(table(found, "Gloo", "µs", 1), flush=True)
    if options.only != "calls":
        found = launch("steps", options.seconds)
        print(table(found, "DDP over Gloo", "ms", 1000), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
