#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures through TensorFlow what was once measured of upstream Horovod 0.28.1, and compares.

Upstream's figures are constants here: two ranks on a virtual machine of two partly busy cores, TensorFlow 2.12.1, Open
MPI 4.1.4; its best repetitions are the fairer figures. The table of docs/operate/benchmarks.md between the upstream
markers can be brought up to date with --markdown.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import page
import report
from arguments import count
from bars import Bar, size_name
from contenders import KIB, MIB, ROOT
from measure import rounds, run, say
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
# Moments of a rank, by a clock that all processes of the machine share; ending is no part of it.
FIRST_ALLREDUCE = """import time
moments = [time.monotonic()]
import tensorflow as tf
moments.append(time.monotonic())
import horovod.tensorflow as hvd
moments.append(time.monotonic())
hvd.init()
moments.append(time.monotonic())
assert float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum)) == hvd.size()
moments.append(time.monotonic())
print("AT", *moments, flush=True)
hvd.shutdown()"""
IMPORT = "import tensorflow"
# What lies between the moments, from calling horovodrun on.
PARTS = ("horovodrun and the interpreter", IMPORT, "import horovod.tensorflow", "init", "the first allreduce")


def key(size: int, mode: str) -> str:
    """Of a figure in JSON."""
    return f"{size} {mode}"


def size_text(size: int) -> str:
    return "ResNet-50" if size == RESNET else size_name(size)


def moments(stdout: str) -> list[list[float]]:
    """Those of every rank."""
    return [[float(word) for word in line.split("AT ")[1].split()] for line in stdout.splitlines() if "AT " in line]


def start_parts(begin: float, ranks: list[list[float]]) -> dict[str, float]:
    """
    Seconds of a start by part, and "beyond": all of it less the longest import of TensorFlow.

    The parts are those of the rank that had TensorFlow last, for which the others wait.
    """
    last = max(ranks, key=lambda one: one[1])
    parts = {name: after - before for name, before, after in zip(PARTS, [begin, *last], last)}
    in_all = max(one[-1] for one in ranks) - begin
    return parts | {"beyond": in_all - max(one[1] - one[0] for one in ranks)}


def start_up(repetitions: int) -> list[dict[str, float]]:
    """Horovodrun with two ranks until both have reduced. The first brings files from the disk and does not count."""
    horovodrun = str(Path(sys.executable).parent / "horovodrun")
    command = [horovodrun, "-np", "2", sys.executable, "-c", FIRST_ALLREDUCE]
    found = []
    for _ in range(repetitions + 1):
        begin = time.monotonic()
        stdout, _ = run(command, {"TF_CPP_MIN_LOG_LEVEL": "3"})
        found.append(start_parts(begin, moments(stdout)))
    return found[1:]


def own(ours: list[list[float]]) -> float:
    """Milliseconds that an operation takes beyond an empty call; the median of the launches."""
    return statistics.median(call - empty for call, empty in ours)


def operation_bar(size: int, mode: str, ours: list[list[float]]) -> Bar:
    """Of what a call takes and what an empty one does, by launch."""
    small = size < MIB
    group = "4 B and 64 KiB: speed / its median" if small else "from 1 MiB on: speed / its best repetition"
    values = [OPERATIONS[size, mode].compared(size) / call for call, _ in ours]
    at = f"{size_text(size)}, {mode}"
    call = statistics.median(call for call, _ in ours)
    note = f"a call takes {report.number(call)} ms, {report.number(own(ours))} of them hvd, the rest TensorFlow"
    return Bar(f"upstream {at}", 20 if small else 3, False, "x", values, note, "upstream", group, at)


def idle_bar(percents: list[float]) -> Bar:
    what = f"idle CPU of a rank; upstream: {UPSTREAM_IDLE}"
    return Bar(what, IDLE_PERCENT, True, "%", percents, goal="upstream", group=what)


def start_bar(starts: list[dict[str, float]]) -> Bar:
    what = f"horovodrun to the first allreduce, beyond TensorFlow's import; upstream: {UPSTREAM_START}"
    medians = {name: statistics.median(times[name] for times in starts) for name in PARTS}
    note = ", ".join(f"{name} {seconds:.3f}" for name, seconds in medians.items() if name != IMPORT)
    return Bar(what, START_S, True, "s", [times["beyond"] for times in starts], note, "upstream", what)


def spread(values: list[float]) -> str:
    return f"{report.number(statistics.median(values))} ({report.number(min(values))} .. {report.number(max(values))})"


def operations_table(operations: dict[str, list[list[float]]]) -> list[str]:
    lines = [
        "| ms | call | Gloo: median, best | MPI: median, best | Gloo, no cycle | hvd: median (min .. max) "
        "| an empty call | hvd's own part | times as fast | promised | |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|---|",
    ]
    for (size, mode), theirs in OPERATIONS.items():
        ours = operations[key(size, mode)]
        bar = operation_bar(size, mode, ours)
        cells = [
            *(size_text(size), mode),
            *(f"{backend[0]:g}, {backend[1]:g}" for backend in (theirs.gloo, theirs.mpi)),
            f"{theirs.tuned:g}" if theirs.tuned else "",
            spread([call for call, _ in ours]),
            report.number(statistics.median(empty for _, empty in ours)),
            report.number(own(ours)),
            report.number(bar.median),
            *(report.promised(bar), report.verdict(bar)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def table(operations: dict[str, list[list[float]]], others: list[Bar]) -> str:
    return "\n".join([*operations_table(operations), "", *report.bars_table(others)])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=count, default=3)
    parser.add_argument("--seconds", type=float, default=80, help="begin no launches that would take longer in all")
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
    operations: dict[str, list[list[float]]] = {}
    for number in rounds(options.launches, options.seconds):
        say(f"operations, launch {number + 1}/{options.launches}")
        for name, call_and_empty in launch(2, "operations", "upstream_rank.py").items():
            operations.setdefault(name, []).append(call_and_empty)
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
