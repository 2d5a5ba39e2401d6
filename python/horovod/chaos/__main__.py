# SPDX-License-Identifier: Apache-2.0
"""The command ``python -m horovod.chaos``."""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import signal
import sys
import time
from typing import NoReturn

# Before NumPy is loaded: its threads would not survive the forks, and do nothing here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from horovod.chaos import elastic, elastic_faults, fleet, report, soak
from horovod.chaos.plan import EVERY_KIND, KINDS, MOST_RANKS, TRANSPORTS, Options
from horovod.chaos.runner import JobResult
from horovod.common.library import load

_ELASTIC_KINDS = tuple(kind for kind in elastic_faults.KINDS if kind not in EVERY_KIND)


def _ranks(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    least, most = (int(found.group(1)), int(found.group(2) or found.group(1))) if found else (0, 0)
    if not 2 <= least <= most <= MOST_RANKS:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of ranks from 2 to {MOST_RANKS}, or two, as in 2-4")
    return least, most


def _choice(allowed: tuple[str, ...]):
    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(text.split(","))
        for one in chosen:
            if one not in allowed:
                raise argparse.ArgumentTypeError(f"{one!r} is none of {', '.join(allowed)}")
        return tuple(one for one in allowed if one in chosen)

    return parse


def _positive(text: str) -> int:
    if not re.fullmatch(r"\d+", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m horovod.chaos",
        description="Start jobs, hurt them, and check that survivors get errors in time and no result is wrong.",
        epilog=f"faults:\n{report.describe_kinds()}\n\nfaults with --elastic:\n{elastic_faults.describe_kinds()}\n\n"
        "exit status: 0 all well, 1 problems were found, 2 wrong usage",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--faults", type=_positive, metavar="N", help="stop after so many faults (default 200)")
    add("--seed", type=int, default=1, metavar="S", help="what happens follows from it (default 1)")
    add("--np", type=_ranks, default=(2, 4), metavar="A-B", help="ranks of a job (default 2-4)")
    add("--only", type=_choice((*EVERY_KIND, *_ELASTIC_KINDS)), metavar="KIND,...", help="only these faults")
    add("--extended", action="store_true", help="also faults of paths, disks, core files and descriptors; needs root")
    add(
        "--transport",
        type=_choice(TRANSPORTS),
        default=TRANSPORTS,
        metavar="NAME,...",
        help="shm, tcp, hosts (ranks as if on two hosts); default all",
    )
    add("--jobs", type=_positive, metavar="J", help="jobs at the same time (default 2)")
    add("--job", type=int, metavar="K", help="run only this job of the seed again")
    add("--report", type=pathlib.Path, metavar="FILE", help="write the report there: .md or .json")
    add("--soak", type=_positive, metavar="SECONDS", help="no faults: one job for so long, see whether anything grows")
    add("--elastic", action="store_true", help="elastic jobs that horovodrun starts; --faults is 20 then")
    add("--loop", choices=elastic.LOOPS, help="with --elastic: what the ranks train (default numpy)")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.report and chosen.report.suffix not in (".md", ".json"):
        parser.error(f"argument --report: {chosen.report} ends neither in .md nor in .json")
    if chosen.report and not chosen.report.absolute().parent.is_dir():
        parser.error(f"argument --report: there is no folder {chosen.report.absolute().parent}")
    if chosen.only == ("sockets",) and chosen.transport == ("shm",):
        parser.error("argument --only: sockets are used by the transports tcp and hosts only")
    if chosen.soak:
        for name in ("faults", "only", "extended", "jobs", "job"):
            if getattr(chosen, name) not in (None, False) or (name == "job" and chosen.job == 0):
                parser.error(f"argument --{name}: --soak is one job without faults; give either the one or the other")
    if chosen.elastic:
        for name in ("soak", "extended", "jobs", "job"):
            if getattr(chosen, name) not in (None, False) or (name == "job" and chosen.job == 0):
                parser.error(f"argument --{name}: --elastic is one job of horovodrun; give either the one or the other")
    elif chosen.loop:
        parser.error("argument --loop: give --elastic, too")
    known = elastic_faults.KINDS if chosen.elastic else EVERY_KIND
    if unknown := [kind for kind in chosen.only or () if kind not in known]:
        parser.error(f"argument --only: {unknown[0]} is {'none' if chosen.elastic else 'one'} of --elastic")
    chosen.faults, chosen.jobs, chosen.only = (
        chosen.faults or (20 if chosen.elastic else 200),
        chosen.jobs or 2,
        chosen.only or (() if chosen.elastic else tuple(EVERY_KIND if chosen.extended else KINDS)),
    )
    if chosen.job is not None and chosen.job < 0:
        parser.error(f"argument --job: {chosen.job} is below 0")
    if not sys.platform.startswith("linux"):
        parser.error("this works on Linux only")
    load()  # says what to do if the library is missing
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        run = _soak if chosen.soak else _elastic if chosen.elastic else _chaos
        return run(chosen)
    except KeyboardInterrupt:
        print("horovod.chaos: interrupted", file=sys.stderr)
        return 1


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _chaos(chosen: argparse.Namespace) -> int:
    options = Options(chosen.seed, *chosen.np, chosen.only, chosen.transport)
    results: list[JobResult] = []
    lively = sys.stderr.isatty()

    def progress(result: JobResult, seconds: float) -> None:
        results.append(result)
        if lively:
            faults, problems = (sum(len(getattr(one, what)) for one in results) for what in ("injected", "problems"))
            line = f"\r{faults} of {chosen.faults} faults, {problems} problems, {seconds:.0f} s "
            print(line, end="", file=sys.stderr, flush=True)
        if result.problems:
            _show(result, options)

    begin = time.monotonic()
    code = 0
    try:
        fleet.run(options, chosen.faults, chosen.jobs, progress, chosen.job)
    except KeyboardInterrupt:
        print("horovod.chaos: interrupted; the report is about the jobs that have ended", file=sys.stderr)
        code = 1
    if lively:
        print(file=sys.stderr)
    summary = report.summarize(options, results, time.monotonic() - begin)
    print(report.text(summary))
    _write(chosen.report, report.text(summary), report.as_json(summary))
    return 1 if any(summary.problems.values()) else code


def _show(result: JobResult, options: Options) -> None:
    print(f"\nPROBLEMS in job {result.job}; to run it again: {options.repeat(result.job)}")
    for kind, text, _ in result.problems:
        print(f"  {kind}: {text}")
    print(result.logs, flush=True)


def _elastic(chosen: argparse.Namespace) -> int:
    found = elastic.ElasticJob(chosen.np[1], chosen.faults, chosen.seed, chosen.loop or "numpy", chosen.only).run()
    print(found.text())
    if found.problems:
        print(found.errors)
    _write(chosen.report, found.text(), found.as_json())
    return 1 if found.problems else 0


def _soak(chosen: argparse.Namespace) -> int:
    found = soak.run(chosen.soak, chosen.np[1], chosen.seed, chosen.transport[0])
    print(found.text())
    _write(chosen.report, found.text(), found.as_json())
    return 1 if found.problems() else 0


def _write(path: pathlib.Path | None, text: str, json: str) -> None:
    if path is not None:
        path.write_text((json if path.suffix == ".json" else text) + "\n")


if __name__ == "__main__":
    sys.exit(main())
