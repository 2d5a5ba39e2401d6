# SPDX-License-Identifier: Apache-2.0
"""Trains examples/tensorflow/keras_fit.py on 1 and on 2 processes and prints both side by side."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time

from horovod.runner.program import find_horovodrun

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent / "examples" / "tensorflow" / "keras_fit.py"
LEAST_ACCURACY = 0.95


def train(ranks: int) -> dict:
    """Return what rank 0 reports. Each process computes with one thread: two have twice the processor of one."""
    print(f"demo: training with {ranks} process{'es' if ranks > 1 else ''} ...", flush=True)
    command = [find_horovodrun(), "-np", str(ranks), "--prefix", "", sys.executable, str(EXAMPLE)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    return json.loads(output_of([*command, "--threads", "1", "--json"], environment).strip().splitlines()[-1])


def output_of(command: list[str], environment: dict[str, str], patience: float = 300) -> str:
    """Return what a command printed. Every five seconds a line says that it runs."""
    begin = time.monotonic()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        while True:
            try:
                said = process.communicate(timeout=5)[0]
                break
            except subprocess.TimeoutExpired:
                seconds = time.monotonic() - begin
                if seconds > patience:
                    process.terminate()
                    raise
                print(f"demo:   {seconds:3.0f} s", flush=True)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command, said)
    return said


def row(text: str, *values: str) -> str:
    """Return one line of the table."""
    return f"| {text:<42} |" + "".join(f" {value:>12} |" for value in values)


def main() -> int:
    """Print the table; fail if the network did not learn, or if ranks do not agree."""
    one, two = train(1), train(2)
    print("A Keras network on 1440 handwritten digits, 36 pictures per step and process, one thread per process\n")
    print(row("", "np=1", "np=2"))
    print(f"|{'-' * 44}|{'-' * 14}|{'-' * 14}|")
    for epoch in range(len(one["losses"])):
        print(row(f"loss, epoch {epoch + 1}", f"{one['losses'][epoch]:.4f}", f"{two['losses'][epoch]:.4f}"))
    print(row("accuracy on 357 unseen digits", *(f"{run['accuracy']:.4f}" for run in (one, two))))
    print(row("pictures per second", *(f"{run['samples_per_second']:,.0f}" for run in (one, two))))
    print(row("speed-up", "1.00", f"{two['samples_per_second'] / one['samples_per_second']:.2f}"))
    print(
        row("weights have the same bits on all ranks", *("yes" if r["identical_weights"] else "NO" for r in (one, two)))
    )
    good = all(run["identical_weights"] and run["accuracy"] >= LEAST_ACCURACY for run in (one, two))
    print(
        f"\n{'ok' if good else 'FAILED'}: accuracy must be at least {LEAST_ACCURACY}, and weights the same on all ranks"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
