#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Synthetic training on this machine: gradients of known networks are reduced while the rest of the step is computed.

Compute is either multiplications on the ranks' own cores, which the reduction then takes away from them, or a wait, as
for an accelerator beside them. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

import page
from contenders import ROOT
from measure import run, say
from models import MODELS

# Time of compute for each time of communication. Assumed: about what a Pascal GPU with batches of 64 and its share of
# 25 Gbit/s had, with which 90 % and 68 % were published for networks like the first and the second.
RATIOS = {"ResNet-50": 4.0, "VGG-16": 1.2, "BERT-base": 2.0}
LIMITS = {("ResNet-50", "accelerator"): 0.90, ("VGG-16", "accelerator"): 0.68}
COMPUTE = ("accelerator", "core")


def efficiency(times: dict[str, float]) -> float:
    """The share of a step that it would take without communication."""
    return times["compute"] / times["step"]


def hidden(times: dict[str, float]) -> float:
    """The share of the communication that does not make the step longer."""
    return 1 - (times["step"] - times["compute"]) / times["communication"]


def launch(model: str, compute: str, options: argparse.Namespace) -> dict[str, float]:
    wanted = {"model": model, "compute": compute, "ratio": options.ratio or RATIOS[model]}
    wanted |= {"steps": options.steps, "arena": options.arena}
    horovodrun = Path(sys.executable).parent / "horovodrun"
    script = ROOT / "benchmarks" / "training_rank.py"
    command = [str(horovodrun), "-np", str(options.ranks), "--prefix", "", sys.executable, str(script)]
    stdout, foreign = run([*command, json.dumps(wanted)], timeout=300)
    if foreign > 0.1:
        say(f"{model}, {compute}: {foreign:.0%} of the machine was busy with other work")
    return json.loads(stdout.splitlines()[-1])


def spread(values: list[float], scale: float, unit: str) -> str:
    low, middle, high = (scale * v for v in (min(values), statistics.median(values), max(values)))
    return f"{middle:.0f}{unit} ({low:.0f} .. {high:.0f})"


def line(model: str, compute: str, launches: list[dict[str, float]]) -> str:
    """A row of the table."""
    cells = [spread([times[name] for times in launches], 1e3, " ms") for name in ("compute", "communication", "step")]
    shares = [efficiency(times) for times in launches]
    cells += [spread([hidden(times) for times in launches], 100, " %"), spread(shares, 100, " %")]
    limit = LIMITS.get((model, compute))
    outcome = "holds" if limit is None or statistics.median(shares) >= limit else "**missed**"
    promised = "" if limit is None else f"≥ {limit * 100:.0f} % {outcome}"
    return f"| {model} | {compute} | {' | '.join(cells)} | {promised} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--compute", nargs="+", choices=COMPUTE, default=list(COMPUTE))
    parser.add_argument("--ratio", type=float, help="time of compute for each time of communication; default by model")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--arena", action="store_true", help="gradients in memory of hvd.empty")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "training.json")
    parser.add_argument("--markdown", type=Path, help="a page with the training markers")
    options = parser.parse_args()
    cases = [(model, compute) for model in options.models for compute in options.compute]
    results: dict[tuple[str, str], list[dict[str, float]]] = {case: [] for case in cases}
    for number in range(options.launches):
        for case in cases[:: 1 if number % 2 == 0 else -1]:
            say(f"launch {number + 1}/{options.launches}: {', '.join(case)}")
            results[case].append(launch(*case, options))
    lines = ["| gradients | compute | compute alone | reduction alone | step | hidden | efficiency | promised |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|---|")
    text = "\n".join(lines + [line(*case, launches) for case, launches in results.items()])
    print(text)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps([[*case, launches] for case, launches in results.items()], indent=1) + "\n")
    if options.markdown:
        page.put(options.markdown, "training", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
