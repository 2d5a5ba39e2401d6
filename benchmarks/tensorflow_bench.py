#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures horovod.tensorflow: several launches of each figure, medians over launches.

Figures that compare do so inside one launch, in alternating order. The table of docs/operate/benchmarks.md between the
TensorFlow markers can be brought up to date with --markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

import page
import report
from arguments import count
from bars import Bar
from measure import rounds, say

ROOT = Path(__file__).resolve().parent.parent


def launch(ranks: int, what: str, program: str = "tensorflow_rank.py") -> dict:
    """Run one figure, or several with commas between them, and return what rank 0 measured."""
    horovodrun = Path(sys.executable).parent / "horovodrun"
    command = [horovodrun, "-np", str(ranks), sys.executable, ROOT / "benchmarks" / program, what]
    env = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    done = subprocess.run(command, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    for line in done.stdout.splitlines():
        if "RESULT " in line:
            return json.loads(line.split("RESULT ", 1)[1])
    sys.exit(f"{what} on {ranks} ranks ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


def measure(launches: int, seconds: float) -> dict[str, list[float]]:
    """Return every launch's value of every figure."""
    values: dict[str, list[float]] = {}
    for number in rounds(launches, seconds):
        say(f"launch {number + 1}/{launches}")
        found = launch(2, "small,resnet50,hidden") | launch(1, "wrapped") | launch(2, "efficiency")
        for name, *_ in FIGURES:
            values.setdefault(name, []).append(found[name])
    return values


# Name, what it is, what is promised (None: nothing), and whether that is the most.
FIGURES = [
    ("wrapped", "wrapped Keras optimizer on one process, steps of about 1 ms: more than plain", 2, True, "%"),
    ("eager", "eager 4 B allreduce, 2 ranks", 150, True, "µs"),
    ("link", "one of 100 dependent 4 B operations in a tf.function, less a tf.identity", 20, True, "µs"),
    ("single", "reducing ResNet-50's gradients (161 tensors, 102 MB), one operation each, 2 ranks", 28.7, True, "ms"),
    ("grouped", "the same gradients as one group", 28.7, True, "ms"),
    ("nothing", "not in either: making the tensors", None, True, "ms"),
    ("hidden", "share of the reduction hidden behind the backward pass, Keras fit, VGG-like", 50, False, "%"),
    ("efficiency", "fit on 2 processes with one thread each against twice one process", 90, False, "%"),
    ("unreduced", "the same with steps that wait for each other and reduce nothing", None, False, "%"),
]


def bars_of(values: dict[str, list[float]]) -> list[Bar]:
    """What is promised."""
    return [
        Bar(text, limit, at_most, unit, values[name], goal="TensorFlow", group=text)
        for name, text, limit, at_most, unit in FIGURES
        if limit is not None
    ]


def table(values: dict[str, list[float]]) -> str:
    """Return it in Markdown."""
    lines = ["| what | promised | median | min .. max of launches | |", "|---|---|---:|---:|---|"]
    promises = {bar.what: bar for bar in bars_of(values)}
    for name, text, _, _, unit in FIGURES:
        found, bar = values[name], promises.get(text)
        lines.append(
            f"| {text} | {report.promised(bar) if bar else ''} | {statistics.median(found):.1f} {unit} "
            f"| {min(found):.1f} .. {max(found):.1f} | {report.verdict(bar) if bar else ''} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=count, default=3)
    parser.add_argument("--seconds", type=float, default=150, help="begin no launches that would take longer in all")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "tensorflow.json")
    parser.add_argument("--markdown", type=Path, help="a page with the TensorFlow markers")
    options = parser.parse_args()
    values = measure(options.launches, options.seconds)
    context = report.context([], " ".join(["benchmarks/tensorflow_bench.py", *map(shlex.quote, sys.argv[1:])]))
    text = f"{table(values)}\n\n{report.origin(context)}"
    print(text)
    report.write_json(options.json, context, bars_of(values), values=values)
    if options.markdown:
        page.put(options.markdown, "tensorflow", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
