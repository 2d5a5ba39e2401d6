# SPDX-License-Identifier: Apache-2.0
"""
Injects one fault per trial and asks whether the stall report and horovod.flight name the right rank and cause.

    python tests/python/fault_matrix.py --trials 200 --jobs 2 --seed 1

A trial is a job of 2 to 4 ranks that do a few operations well, until one of them, the victim, does something else. What
a user would see is compared with what was done: the stall report or, where the engine ends operations with an error,
that error; and the verdict of horovod.flight on the ranks' dumps. Equal seeds give equal trials.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "tools")]

import preloaded  # noqa: E402
import spawn  # noqa: E402

KINDS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")
CAUSES = ("dead", "stopped", "busy", "never", "shape", "type", "reduction", "operation", "name", "skips")
LIMIT_S = 120.0
# What a report says of the victim, and what horovod.flight calls it.
STALLS = {
    "stopped": ("is stopped", "stopped"),
    "busy": ("is busy in its own code", "busy"),
    "never": ("never submitted it", "never_submitted"),
    "operation": ("waits for {wrong}", "other_operation"),
    "name": ("waits for {wrong}", "other_name"),
    "skips": ("waits for {wrong}", "other_order"),
}
ERRORS = {
    "dead": (r"rank {victim} \(host [^)]*\) (died|was ended by signal)", "dead"),
    "shape": (r"Mismatched .*shape.* rank {victim} has ", "other_shape"),
    "type": (r"Mismatched data types.* rank {victim} has float64", "other_type"),
    "reduction": (r"Mismatched reduction.* rank {victim} has \d \(max\)", "other_reduction"),
}


@dataclasses.dataclass
class Trial:
    """One fault."""

    number: int
    cause: str
    size: int
    victim: int
    kind: str
    steps: int  # that go well before it
    names: int  # operations of a step
    at: int  # which of them it happens at
    named: bool
    rows: int
    columns: int
    asynchronous: bool  # something else is in flight
    subset: bool  # on a process set that lacks a rank
    shm: bool

    @property
    def undecided(self) -> bool:
        """Whether nobody can tell which of two ranks is right."""
        two = self.size == 2 or (self.subset and self.size == 3)
        return two and self.steps == 0 and self.cause in ("shape", "type", "reduction", "operation", "name")

    @property
    def members(self) -> list[int]:
        """Ranks that take part."""
        if not self.subset:
            return list(range(self.size))
        left_out = (self.victim + 1) % self.size
        return [rank for rank in range(self.size) if rank != left_out]


def make_trial(seed: int, number: int, cause: str | None = None) -> Trial:
    """Draw a trial."""
    rng = random.Random(f"{seed}/{number}")
    cause = cause or CAUSES[number % len(CAUSES)]
    # Of two ranks nobody can say whether the one skipped something or the other did too much.
    size = rng.choice((3, 4) if cause == "skips" else (2, 3, 4))
    kind = rng.choice(KINDS)
    if cause == "reduction":
        kind = "allreduce"
    names = rng.randint(2 if cause == "skips" else 1, 4)
    repeats = cause in ("busy", "skips")
    return Trial(
        number,
        cause,
        size,
        rng.randrange(size),
        kind,
        steps=rng.randint(1, 5) if repeats else rng.randint(0, 5),
        names=names,
        at=rng.randrange(names - 1 if cause == "skips" else names),
        named=cause not in ("dead", "stopped", "busy") or rng.random() < 0.7,
        rows=12 * rng.randint(1, 3),
        columns=rng.choice((1, 3, 1000)),
        asynchronous=rng.random() < 0.3,
        subset=size > (3 if cause == "skips" else 2) and rng.random() < 0.25,
        shm=rng.random() < 0.7,
    )


# --- one rank of a trial ----------------------------------------------------------------------------------------------


def rank_main(trial: Trial) -> None:
    """Be one rank."""
    import horovod.numpy as hvd
    import numpy as np

    process_sets = [hvd.ProcessSet(trial.members)] if trial.subset else []
    hvd.init(process_sets=process_sets)
    where = {"process_set": process_sets[0]} if trial.subset else {}
    mine = hvd.rank() == trial.victim

    def run(kind, name, dtype=np.float32, columns=trial.columns, reduction=hvd.Sum):
        array = np.ones((trial.rows, columns), dtype)
        if kind == "allreduce":
            hvd.allreduce(array, name=name, op=reduction, **where)
        elif kind == "reducescatter":
            hvd.reducescatter(array, name=name, op=reduction, **where)
        elif kind == "broadcast":
            hvd.broadcast(array, trial.members[0], name=name, **where)
        else:
            getattr(hvd, kind)(array, name=name, **where)

    def fault(name):
        if trial.cause in ("busy", "never"):
            if trial.asynchronous:
                hvd.allreduce_async(np.ones(5, np.float32), name="ahead", **where)
            time.sleep(LIMIT_S)
        elif trial.cause == "dead":
            os.kill(os.getpid(), signal.SIGKILL)
        elif trial.cause == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif trial.cause == "shape":
            run(trial.kind, name, columns=trial.columns + 1)
        elif trial.cause == "type":
            run(trial.kind, name, dtype=np.float64)
        elif trial.cause == "reduction":
            run(trial.kind, name, reduction=hvd.Max)
        elif trial.cause == "operation":
            run(KINDS[(KINDS.index(trial.kind) + 1) % len(KINDS)], name)
        elif trial.cause == "name":
            run(trial.kind, name + "_other")
        # "skips": it goes on with the next.

    if hvd.rank() in trial.members:
        try:
            for step in range(trial.steps + 1):
                for i in range(trial.names):
                    name = f"grad/{i}" if trial.named else None
                    here = step == trial.steps and i == trial.at
                    if here and trial.cause == "never":
                        name = "metric"
                    if here and trial.asynchronous:
                        hvd.allreduce_async(np.ones(5, np.float32), name="before", **where)
                    fault(name) if here and mine else run(trial.kind, name)
            time.sleep(LIMIT_S)  # Only to be killed: nobody comes here unless the fault went unnoticed.
        except hvd.HorovodInternalError as error:
            print("ERROR", error, flush=True)
    elif trial.cause in STALLS:
        time.sleep(LIMIT_S)
    hvd.shutdown()


# --- the harness ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Outcome:
    """What a user saw."""

    trial: Trial
    reported: bool = False
    analysed: bool = False
    reporters: int = 0
    verdict: str = ""
    outputs: list[str] = dataclasses.field(default_factory=list)

    @property
    def right(self) -> bool:
        """Whether both are."""
        return self.reported and self.analysed

    def describe(self) -> str:
        """For a person who wants to know why it is wrong."""
        outputs = "\n".join(f"--- rank {rank}\n{text}" for rank, text in enumerate(self.outputs))
        return f"{self.trial}\nreported {self.reported}, analysed {self.analysed}: {self.verdict}\n{outputs}"


def environment(trial: Trial, rank: int, folder: pathlib.Path, address: str) -> dict[str, str]:
    """Environment of one rank."""
    env = dict(os.environ, PYTHONUNBUFFERED="1", HOROVOD_FLIGHT_DIR=str(folder / "flight"))
    env.update(HOROVOD_RANK=str(rank), HOROVOD_SIZE=str(trial.size), HOROVOD_RENDEZVOUS_ADDR=address)
    env.update(HOROVOD_STALL_CHECK_TIME_SECONDS="2", HOROVOD_HEARTBEAT_TIMEOUT_SECONDS="60", HOROVOD_START_TIMEOUT="60")
    if not trial.shm:
        env["HOROVOD_DISABLE_SHM"] = "1"
    return env


def run_trial(trial: Trial) -> Outcome:
    """Run one trial and judge it."""
    from horovod.flight import diagnose, load
    from horovod.flight.__main__ import local_probe

    outcome = Outcome(trial)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        address = f"127.0.0.1:{spawn.free_port()}"
        command = [sys.executable, __file__, "--be", json.dumps(dataclasses.asdict(trial))]
        processes: list[preloaded.Rank] = []
        stack.callback(spawn._kill, processes)
        for rank in range(trial.size):
            output = stack.enter_context(open(folder / f"output.{rank}", "wb"))
            env = environment(trial, rank, folder, address)
            processes.append(preloaded.Rank("numpy", rank, command, env, output.fileno()))

        def outputs() -> list[str]:
            return [(folder / f"output.{rank}").read_text(errors="replace") for rank in range(trial.size)]

        def done() -> bool:
            if trial.cause in STALLS:
                return any("Stalled for" in text for text in outputs()) or all(p.poll() is not None for p in processes)
            return all(process.poll() is not None for process in processes)

        deadline = time.monotonic() + LIMIT_S
        while not done() and time.monotonic() < deadline:
            time.sleep(0.05)
        flight = folder / "flight"
        flight.mkdir(exist_ok=True)  # the first dump makes it
        # A stall is reported once; every rank that runs then writes its dump, on a busy machine some time later.
        writers = trial.size - (trial.cause in ("dead", "stopped"))
        deadline = min(deadline, time.monotonic() + 10)
        while trial.cause in STALLS and len(load(flight)) < writers and time.monotonic() < deadline:
            time.sleep(0.05)
        outcome.outputs = outputs()
        dumps = load(flight)
        verdict = diagnose(dumps, trial.size, local_probe(dumps))
    outcome.verdict = str(verdict)
    judge_report(outcome)
    cause = (STALLS.get(trial.cause) or ERRORS[trial.cause])[1]
    ranks = trial.members if trial.undecided else [trial.victim]
    outcome.analysed = verdict.cause == cause and verdict.ranks == ranks
    return outcome


def run_trials(trials: list[Trial], jobs: int) -> Iterator[Outcome]:
    """Run several, some at a time; they sleep most of it."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(run_trial, trials)


def judge_report(outcome: Outcome) -> None:
    """Compare the stall report, or the error, with what was done."""
    trial = outcome.trial
    if trial.cause in ERRORS:
        pattern = ERRORS[trial.cause][0].replace("{victim}", str(trial.victim))
        survivors = [rank for rank in trial.members if rank != trial.victim]
        errors = [re.search("ERROR (.*)", outcome.outputs[rank]) for rank in survivors]
        outcome.reported = all(error and re.search(pattern, error[1]) for error in errors)
        return
    reports = [text for text in outcome.outputs if "Stalled for" in text]
    outcome.reporters = len(reports)
    wrong = f"grad/{trial.at}"
    if trial.cause == "name":
        wrong = f"{trial.kind} '{trial.kind}.{wrong}_other'"
    elif trial.cause == "operation":
        kind = KINDS[(KINDS.index(trial.kind) + 1) % len(KINDS)]
        wrong = f"{kind} '{kind}.{wrong}'"
    elif trial.cause == "skips":
        wrong = f"{trial.kind} '{trial.kind}.grad/{trial.at + 1}'"
    words = STALLS[trial.cause][0].replace("{wrong}", wrong)
    blamed = re.findall(r"^  Rank (\d+) \(host [^,]*, pid \d+\) (.*)$", "".join(reports), re.MULTILINE)
    ranks = trial.members if trial.undecided else [trial.victim]
    said = any(int(rank) == trial.victim and text.startswith(words) for rank, text in blamed)
    outcome.reported = len(reports) == 1 and said and [int(rank) for rank, _ in blamed] == ranks


def table(outcomes: list[Outcome]) -> str:
    """Make a table of causes."""
    rows = collections.defaultdict(list)
    for outcome in outcomes:
        rows[outcome.trial.cause].append(outcome)
    lines = ["| cause | trials | report right | flight right |", "|---|---|---|---|"]
    for cause in [cause for cause in CAUSES if cause in rows] + ["all"]:
        some = outcomes if cause == "all" else rows[cause]
        right = sum(outcome.reported for outcome in some), sum(outcome.analysed for outcome in some)
        lines.append(f"| {cause} | {len(some)} | {right[0]} | {right[1]} |")
    return "\n".join(lines)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--jobs", type=int, default=2, help="trials at a time")
    parser.add_argument("--cause", choices=CAUSES, help="only this one")
    parser.add_argument("--be", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be:
        rank_main(Trial(**json.loads(options.be)))
        return 0
    trials = [make_trial(options.seed, options.first + i, options.cause) for i in range(options.trials)]
    outcomes = []
    for outcome in run_trials(trials, options.jobs):
        outcomes.append(outcome)
        if not outcome.right:
            print(outcome.describe(), flush=True)
    print(table(outcomes))
    return 0 if all(outcome.right for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
