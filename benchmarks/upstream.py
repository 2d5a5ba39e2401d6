#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures through TensorFlow what was once measured of upstream Horovod 0.28.1, and compares.

Upstream's figures are constants here: two ranks on a virtual machine of two partly busy cores, TensorFlow 2.12.1, Open
MPI 4.1.4; its best repetitions are the fairer figures. The table of docs/benchmarks.md between the upstream
markers can be brought up to date with --markdown.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import page
import report
from arguments import count
from bars import Bar, size_name
from contenders import KIB, MIB, ROOT
from measure import say
from tensorflow_bench import launch

RESNET = 102_228_128  # bytes of ResNet-50's 161 gradients


@dataclass(frozen=True)
class Upstream:
    """Milliseconds: the median, and the best repetition's median, by its two CPU backends."""

    gloo: tuple[float, float]
    mpi: tuple[float, float]
    tuned: float | None = None  # Gloo's median with HOROVOD_CYCLE_TIME=0

    def compared(self, size: int) -> float:
        """The faster backend: by the median where its cycle of 1 ms decides, by the best repetition where data does."""
        return min(backend[0 if size < MIB else 1] for backend in (self.gloo, self.mpi))


OPERATIONS = {
    (4, "eager"): Upstream((1.09, 1.08), (1.08, 1.07), 0.67),
    (4, "tf.function"): Upstream((1.12, 1.08), (1.08, 1.07)),
    (64 * KIB, "eager"): Upstream((1.35, 1.08), (1.08, 1.07), 0.71),
    (64 * KIB, "tf.function"): Upstream((2.16, 1.12), (1.08, 1.07)),
    (MIB, "eager"): Upstream((2.21, 2.15), (1.09, 1.07), 1.17),
    (MIB, "tf.function"): Upstream((3.21, 2.38), (2.16, 1.07)),
    (16 * MIB, "eager"): Upstream((24.6, 18.6), (49.5, 20.0)),
    (16 * MIB, "tf.function"): Upstream((28.7, 18.9), (38.5, 7.68)),
    (64 * MIB, "eager"): Upstream((96.4, 68.1), (197, 92.7)),
    (64 * MIB, "tf.function"): Upstream((75.8, 52.2), (135, 90.9)),
    (RESNET, "eager, grouped"): Upstream((175, 108), (200, 164)),
    (RESNET, "tf.function, grouped"): Upstream((151, 115), (163, 92.6)),
    (RESNET, "tf.function, one by one"): Upstream((142, 128), (142, 90.0)),
}
IDLE_S = 5
IDLE_PERCENT = 0.2  # what is called no CPU time
UPSTREAM_IDLE = "7 .. 14 (Gloo), 2 .. 99 (MPI) %"
START_S = 0.3
UPSTREAM_START = "6.0 (Gloo), 10.8 (MPI) s in all"
# The last process counts, by a clock that all processes of the machine share; ending is no part of it.
FIRST_ALLREDUCE = """import time
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
assert float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum)) == hvd.size()
print("AT", time.monotonic(), flush=True)
hvd.shutdown()"""
IMPORT = """import time
import tensorflow as tf
print("AT", time.monotonic(), flush=True)"""


def key(size: int, mode: str) -> str:
    """Of a figure in JSON."""
    return f"{size} {mode}"


def size_text(size: int) -> str:
    return "ResNet-50" if size == RESNET else size_name(size)


def last_at(texts: list[str]) -> float:
    """The latest moment that a process printed."""
    return max(float(line.split("AT ")[1]) for text in texts for line in text.splitlines() if "AT " in line)


def seconds(commands: list[list[str]]) -> float:
    """From their common start to the last line that one of them prints."""
    env = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    begin = time.monotonic()
    processes = [subprocess.Popen(command, env=env, **pipes) for command in commands]
    texts = [process.communicate(timeout=120) for process in processes]
    for process, (_, stderr) in zip(processes, texts):
        if process.returncode != 0:
            sys.exit(f"{process.args[0]} ended with {process.returncode}:\n{stderr}")
    return last_at([stdout for stdout, _ in texts]) - begin


def start_up(repetitions: int) -> list[dict[str, float]]:
    """Horovodrun with two ranks until both have reduced, and TensorFlow imported twice at once; in turns."""
    horovodrun = str(Path(sys.executable).parent / "horovodrun")
    commands = {
        "job": [[horovodrun, "-np", "2", sys.executable, "-c", FIRST_ALLREDUCE]],
        "import": [[sys.executable, "-c", IMPORT]] * 2,
    }
    seconds(commands["import"])  # files from the disk
    found = []
    for repetition in range(repetitions):
        names = list(commands) if repetition % 2 == 0 else list(reversed(commands))
        found.append({name: seconds(commands[name]) for name in names})
    return found


def operation_bar(size: int, mode: str, ours: list[float]) -> Bar:
    small = size < MIB
    group = "4 B and 64 KiB: speed / its median" if small else "from 1 MiB on: speed / its best repetition"
    values = [OPERATIONS[size, mode].compared(size) / ms for ms in ours]
    at = f"{size_text(size)}, {mode}"
    return Bar(f"upstream {at}", 20 if small else 3, False, "x", values, goal="upstream", group=group, at=at)


def idle_bar(percents: list[float]) -> Bar:
    what = f"idle CPU of a rank; upstream: {UPSTREAM_IDLE}"
    return Bar(what, IDLE_PERCENT, True, "%", percents, goal="upstream", group=what)


def start_bar(starts: list[dict[str, float]]) -> Bar:
    what = f"horovodrun to the first allreduce, beyond TensorFlow's import; upstream: {UPSTREAM_START}"
    values = [times["job"] - times["import"] for times in starts]
    return Bar(what, START_S, True, "s", values, goal="upstream", group=what)


def spread(values: list[float]) -> str:
    return f"{report.number(statistics.median(values))} ({report.number(min(values))} .. {report.number(max(values))})"


def operations_table(operations: dict[str, list[float]]) -> list[str]:
    lines = [
        "| ms | call | Gloo: median, best | MPI: median, best | Gloo, no cycle | hvd: median (min .. max) "
        "| times as fast | promised | |",
        "|---|---|---:|---:|---:|---:|---:|---|---|",
    ]
    for (size, mode), theirs in OPERATIONS.items():
        ours = operations[key(size, mode)]
        bar = operation_bar(size, mode, ours)
        cells = [
            *(size_text(size), mode),
            *(f"{backend[0]:g}, {backend[1]:g}" for backend in (theirs.gloo, theirs.mpi)),
            f"{theirs.tuned:g}" if theirs.tuned else "",
            spread(ours),
            report.number(bar.median),
            *(report.promised(bar), report.verdict(bar)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def table(operations: dict[str, list[float]], others: list[Bar]) -> str:
    return "\n".join([*operations_table(operations), "", *report.bars_table(others)])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=count, default=3)
    parser.add_argument("--repetitions", type=count, default=5, help="of the start")
    parser.add_argument("--quick", action="store_true", help="one of each")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "upstream.json")
    parser.add_argument("--markdown", type=Path, help="a page with the upstream markers")
    options = parser.parse_args()
    if options.quick:
        options.launches = options.repetitions = 1
    return options


def main() -> int:
    options = parse()
    operations: dict[str, list[float]] = {}
    for number in range(options.launches):
        say(f"operations, launch {number + 1}/{options.launches}")
        for name, ms in launch(2, "operations", "upstream_rank.py").items():
            operations.setdefault(name, []).append(ms)
    say("idling")
    percents = [launch(2, "idle", "upstream_rank.py")["percent"]]
    say("starting")
    starts = start_up(options.repetitions)
    others = [idle_bar(percents), start_bar(starts)]
    bars = [operation_bar(size, mode, operations[key(size, mode)]) for size, mode in OPERATIONS] + others
    context = report.context([], " ".join(["benchmarks/upstream.py", *map(shlex.quote, sys.argv[1:])]))
    text = f"{table(operations, others)}\n\n{report.origin(context)}"
    print(text)
    report.write_json(options.json, context, bars, milliseconds=operations, starts=starts)
    if options.markdown:
        page.put(options.markdown, "upstream", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
