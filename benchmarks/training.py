#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Synthetic training on this machine: gradients of known networks are reduced while the rest of the step is computed.

Through C, NumPy and TensorFlow. Compute is either multiplications on the ranks' own cores, which the reduction then
takes away from them, or a wait, as for an accelerator beside them. See docs/operate/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from pathlib import Path

import page
import report
from arguments import count
from bars import Bar
from contenders import HVD_PERF, ROOT
from measure import rounds, run, say
from models import MODELS, RATIOS, WORDS

LIMITS = {("ResNet-50", "accelerator"): 0.90, ("VGG-16", "accelerator"): 0.68}
COMPUTE = {"accelerator": "wait", "core": "busy"}  # what hvd_perf calls them
THROUGH = ("C", "NumPy", "TensorFlow")
RANK_PROGRAMS = {"NumPy": "training_rank.py", "TensorFlow": "training_tensorflow_rank.py"}

# Medians of a launch in seconds: compute alone, communication alone, and the step.
Times = dict[str, float]
Case = tuple[str, str, str]  # network, interface, compute


def efficiency(times: Times) -> float:
    """The share of a step that it would take without communication."""
    return times["compute"] / times["step"]


def hidden(times: Times) -> float:
    """The share of the communication that does not make the step longer."""
    return 1 - (times["step"] - times["compute"]) / times["communication"]


def from_hvd_perf(stdout: str) -> dict[str, Times]:
    """By kind of compute."""
    rows = {row["compute"]: row for row in json.loads(stdout)["rows"]}
    return {
        compute: {figure: rows[word][f"{figure}_s"] for figure in ("compute", "communication", "step")}
        for compute, word in COMPUTE.items()
        if word in rows
    }


def launch(model: str, through: str, options: argparse.Namespace) -> dict[str, Times]:
    """All kinds of compute in one launch."""
    ratio = options.ratio or RATIOS[model]
    if through == "C":
        command = [str(options.hvd_perf), "--fork", "--ranks", str(options.ranks), "--train", WORDS[model]]
        command += ["--buffers", "arena" if options.arena else "private", "--ratio", str(ratio)]
        command += ["--iters", str(options.steps), "--json", "-"]
        if len(options.compute) == 1:
            command += ["--compute", COMPUTE[options.compute[0]]]
    else:
        wanted = {"model": model, "compute": options.compute, "ratio": ratio}
        wanted |= {"steps": options.steps, "arena": options.arena}
        horovodrun = Path(sys.executable).parent / "horovodrun"
        script = ROOT / "benchmarks" / RANK_PROGRAMS[through]
        command = [str(horovodrun), "-np", str(options.ranks), "--prefix", "", sys.executable, str(script)]
        command.append(json.dumps(wanted))
    stdout, foreign = run(command, {"TF_CPP_MIN_LOG_LEVEL": "3"}, timeout=300)
    if foreign > 0.1:
        say(f"{model}, {through}: {foreign:.0%} of the machine was busy with other work")
    return from_hvd_perf(stdout) if through == "C" else json.loads(stdout.splitlines()[-1])


def spread(values: list[float], scale: float, unit: str) -> str:
    low, middle, high = (scale * v for v in (min(values), statistics.median(values), max(values)))
    return f"{middle:.0f}{unit} ({low:.0f} .. {high:.0f})"


def bar(case: Case, launches: list[Times]) -> Bar | None:
    """The promise of this case, if there is one."""
    model, through, compute = case
    limit = LIMITS.get((model, compute))
    if limit is None:
        return None
    values = [100 * efficiency(times) for times in launches]
    what = f"efficiency of emulated training, {model}, {compute}"
    return Bar(f"G13 {what}, through {through}", 100 * limit, False, "%", values, goal="G13", group=what, at=through)


def line(case: Case, launches: list[Times]) -> str:
    """A row of the table."""
    if not launches:
        return f"| {' | '.join(case)} | | | | | failed | |"
    cells = [spread([times[name] for times in launches], 1e3, " ms") for name in ("compute", "communication", "step")]
    cells.append(spread([hidden(times) for times in launches], 100, " %"))
    cells.append(spread([efficiency(times) for times in launches], 100, " %"))
    promise = bar(case, launches)
    promised = f"≥ {promise.limit:.0f} %: {report.verdict(promise)}" if promise else ""
    return f"| {' | '.join(case)} | {' | '.join(cells)} | {promised} |"


def table(results: dict[Case, list[Times]]) -> str:
    lines = [
        "| gradients | through | compute | compute alone | reduction alone | step | hidden | efficiency | promised |"
    ]
    lines.append("|---|---|---|---:|---:|---:|---:|---:|---|")
    return "\n".join(lines + [line(case, launches) for case, launches in results.items()])


def measure(options: argparse.Namespace) -> dict[Case, list[Times]]:
    """In turns, and as often as the time allows; a round that would not end in time is not begun."""
    pairs = [(model, through) for model in options.models for through in options.through]
    results: dict[Case, list[Times]] = {(*pair, compute): [] for pair in pairs for compute in options.compute}
    for number in rounds(options.launches, options.seconds):
        for pair in pairs[:: 1 if number % 2 == 0 else -1]:
            say(f"launch {number + 1}/{options.launches}: {', '.join(pair)}")
            try:
                found = launch(*pair, options)
            except (RuntimeError, ValueError, KeyError, OSError) as reason:
                say(f"{', '.join(pair)}: {reason}")
                continue
            for compute, times in found.items():
                results[(*pair, compute)].append(times)
    return results


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--through", nargs="+", choices=THROUGH, default=list(THROUGH))
    parser.add_argument("--compute", nargs="+", choices=list(COMPUTE), default=list(COMPUTE))
    parser.add_argument("--ratio", type=float, help="time of compute for each time of communication; default by model")
    parser.add_argument("--ranks", type=count, default=2)
    parser.add_argument("--steps", type=count, default=4)
    parser.add_argument("--launches", type=count, default=3)
    parser.add_argument("--seconds", type=float, default=240, help="begin no launches that would take longer in all")
    parser.add_argument("--quick", action="store_true", help="one launch of two steps")
    parser.add_argument("--arena", action="store_true", help="gradients in memory of hvd_alloc; not in TensorFlow")
    parser.add_argument("--hvd-perf", type=Path, default=HVD_PERF, help=f"default {HVD_PERF.relative_to(ROOT)}")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "training.json")
    parser.add_argument("--markdown", type=Path, help="a page with the training markers")
    options = parser.parse_args()
    if options.quick:
        options.steps, options.launches = 2, 1
    return options


def main() -> int:
    options = parse()
    results = measure(options)
    context = report.context([], " ".join(["benchmarks/training.py", *map(shlex.quote, sys.argv[1:])]))
    text = f"{table(results)}\n\n{report.origin(context)}"
    print(text)
    bars = [one for case, launches in results.items() if (one := bar(case, launches))]
    report.write_json(options.json, context, bars, launches=[[*case, launches] for case, launches in results.items()])
    if options.markdown:
        page.put(options.markdown, "training", text)
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
