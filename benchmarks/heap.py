#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures TensorFlow and Keras with the system's heap and with the arena heap, in turns: a launch's best round.

Beside them: the same training in two processes that know nothing of each other, and under MultiWorkerMirroredStrategy.
Prints tables in Markdown. Takes about three minutes a launch, so it is no part of `make bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
from pathlib import Path

import report
from arguments import count
from bars import Bar
from measure import rounds, say

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = [sys.executable, str(ROOT / "benchmarks" / "heap_rank.py")]
HEAPS = ("system", "arena")

# Name and what it is; all in ms.
FIGURES = [
    ("added1", "what an allreduce of 1 MiB adds to a tf.function that makes its tensor"),
    ("added4", "the same, 4 MiB"),
    ("added16", "the same, 16 MiB"),
    ("single", "ResNet-50's gradients (161 tensors, 102 MB) one by one"),
    ("grouped", "the same as a group"),
    ("fit", "step of Keras fit, 8 dense layers of 1024², batch 32"),
    ("demo2", "step of the demo's network, 2 ranks"),
    ("demo1", "the same, 1 rank"),
]


def result_of(processes: list[subprocess.Popen], what: str) -> list[dict]:
    """Wait for processes and return what they measured."""
    outputs = [process.communicate(timeout=300) for process in processes]
    found = [line[7:] for stdout, _ in outputs for line in stdout.splitlines() if line.startswith("RESULT ")]
    if any(process.returncode for process in processes) or not found:
        sys.exit(f"{what} failed:\n" + "\n".join(stdout + stderr for stdout, stderr in outputs))
    return [json.loads(text) for text in found]


def start(command: list[str], **variables: str) -> subprocess.Popen:
    """Start a process with more environment."""
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=env, text=True, **streams)


def ranks(number: int, what: str, heap: str) -> dict:
    """Run ranks of hvd."""
    horovodrun = Path(sys.executable).parent / "horovodrun"
    command = [str(horovodrun), "-np", str(number), "--heap", heap, "--prefix", "", *PROGRAM, what]
    return result_of([start(command)], what)[0]


def apart() -> float:
    """Run two processes at once that know nothing of each other; return the slower one's step."""
    both = [start([*PROGRAM, "plain"]) for _ in range(2)]
    return max(found["plain"] for found in result_of(both, "plain"))


def mirrored() -> float:
    """Run two workers of MultiWorkerMirroredStrategy."""
    with socket.socket() as first, socket.socket() as second:
        for one in (first, second):
            one.bind(("127.0.0.1", 0))
        workers = [f"127.0.0.1:{one.getsockname()[1]}" for one in (first, second)]
    tasks = [{"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}} for index in range(2)]
    started = [start([*PROGRAM, "mirrored"], TF_CONFIG=json.dumps(task), TF_USE_LEGACY_KERAS="1") for task in tasks]
    return result_of(started, "mirrored")[0]["mirrored"]


def measure(launches: int, seconds: float) -> dict[str, list[float]]:
    """Return every launch's value of every figure, with the heap behind its name, and of the two comparisons."""
    values: dict[str, list[float]] = {}
    for number in rounds(launches, seconds):
        say(f"launch {number + 1}/{launches}")
        for heap in HEAPS if number % 2 else HEAPS[::-1]:
            found = ranks(2, "added,resnet50", heap) | ranks(2, "fit", heap)
            found |= ranks(2, "demo", heap) | ranks(1, "demo", heap)
            say(f"{heap}: {found}")
            for name, value in found.items():
                values.setdefault(f"{name} {heap}", []).append(value)
        values.setdefault("plain", []).append(apart())
        values.setdefault("mirrored", []).append(mirrored())
    return values


def bars_of(values: dict[str, list[float]]) -> list[Bar]:
    """What is promised."""

    def ratio(above: str, below: str) -> list[float]:
        return [one / other for one, other in zip(values[above], values[below])]

    bars = []

    def promise(what: str, limit: float, at_most: bool, unit: str, found: list[float]) -> None:
        bars.append(Bar(what, limit, at_most, unit, found, goal="heap", group=what))

    for size, least in ((1, 2), (4, 3), (16, 3)):
        found = ratio(f"added{size} system", f"added{size} arena")
        promise(f"what an allreduce of {size} MiB adds, system's heap / arena heap", least, False, "x", found)
    promise("ResNet-50's gradients one by one, arena heap", 15, True, "ms", values["single arena"])
    promise("the same as a group", 12, True, "ms", values["grouped arena"])
    promise("Keras fit, arena heap / two processes without hvd", 1.08, True, "x", ratio("fit arena", "plain"))
    promise("Keras fit, MultiWorkerMirroredStrategy / arena heap", 3.5, False, "x", ratio("mirrored", "fit arena"))
    for number in (2, 1):
        found = ratio(f"demo{number} arena", f"demo{number} system")
        promise(f"the demo's network, ranks: {number}, arena heap / system's heap", 1.01, True, "x", found)
    return bars


def table(values: dict[str, list[float]]) -> str:
    """Return both tables in Markdown."""

    def cell(found: list[float]) -> str:
        return f"{statistics.median(found):.2f} ({min(found):.2f} .. {max(found):.2f})"

    lines = ["| ms: median (min .. max of launches) | system's heap | arena heap |", "|---|---:|---:|"]
    lines += [f"| {text} | {' | '.join(cell(values[f'{name} {heap}']) for heap in HEAPS)} |" for name, text in FIGURES]
    lines.append(f"| that fit in two processes without hvd | {cell(values['plain'])} | |")
    lines.append(f"| that fit under MultiWorkerMirroredStrategy, tf_keras | {cell(values['mirrored'])} | |")
    lines += ["", "| what | promised | median | min .. max of launches | |", "|---|---|---:|---:|---|"]
    for bar in bars_of(values):
        lines.append(
            f"| {bar.what} | {report.promised(bar)} | {statistics.median(bar.values):.2f} {bar.unit} "
            f"| {min(bar.values):.2f} .. {max(bar.values):.2f} | {report.verdict(bar)} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=count, default=3)
    parser.add_argument("--seconds", type=float, default=600, help="begin no launches that would take longer in all")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "heap.json")
    options = parser.parse_args()
    values = measure(options.launches, options.seconds)
    context = report.context([], " ".join(["benchmarks/heap.py", *map(shlex.quote, sys.argv[1:])]))
    text = f"{table(values)}\n\n{report.origin(context)}"
    print(text)
    report.write_json(options.json, context, bars_of(values), values=values)
    return 0


if __name__ == "__main__":
    sys.exit(main())
