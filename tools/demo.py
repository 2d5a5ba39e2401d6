# SPDX-License-Identifier: Apache-2.0
"""Trains examples/numpy/digits.py on 1 and on 2 processes and prints both side by side."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

from horovod.runner.program import find_horovodrun

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent / "examples" / "numpy" / "digits.py"
LIMIT = 1e-6


def train(ranks: int) -> dict:
    """Return what rank 0 reports."""
    command = [find_horovodrun(), "-np", str(ranks), "--prefix", "", sys.executable, str(EXAMPLE), "--json"]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    return json.loads(result.stdout.strip().splitlines()[-1])


def row(text: str, *values: str) -> str:
    """Return one line of the table."""
    return f"| {text:<42} |" + "".join(f" {value:>12} |" for value in values)


def main() -> int:
    """Print the table; fail if the two runs do not agree."""
    one, two = train(1), train(2)
    difference = max(abs(a - b) for a, b in zip(one["weights"], two["weights"]))
    print("Softmax regression on 1440 handwritten digits, whole batch split over the ranks\n")
    print(row("", "np=1", "np=2"))
    print(f"|{'-' * 44}|{'-' * 14}|{'-' * 14}|")
    epochs = len(one["losses"])
    for epoch in range(epochs):
        print(row(f"loss, epoch {epoch + 1}", f"{one['losses'][epoch]:.6f}", f"{two['losses'][epoch]:.6f}"))
    print(row("accuracy on 357 unseen digits", f"{one['accuracy']:.4f}", f"{two['accuracy']:.4f}"))
    speeds = [f"{run['samples_per_second']:,.0f}" for run in (one, two)]
    print(row("samples per second", *speeds))
    print(row("all ranks hold identical weights", *("yes" if r["identical_weights"] else "NO" for r in (one, two))))
    print(row("largest difference of a weight to np=1", "0", f"{difference:.1e}"))
    good = difference <= LIMIT and one["identical_weights"] and two["identical_weights"]
    print(f"\n{'ok' if good else 'FAILED'}: the difference must be at most {LIMIT:.0e}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
