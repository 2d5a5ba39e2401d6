# SPDX-License-Identifier: Apache-2.0
"""What will happen in a job: decided by the seed, before anything is started."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

# What a fault is for the others.
DEADLY = "deadly"  # the process ends, and the generation with it
ENDS = "ends"  # the generation ends, the process may live on
HARMLESS = "harmless"  # everything goes on
OPEN = "open"  # either

# Where a fault may come from.
SELF = "self"  # the rank itself, between two of its calls
TIMER = "timer"  # the rank itself, from another thread, in the middle of whatever runs then
DRIVER = "driver"  # from outside, at any time

# When.
INIT, RUN, SHUTDOWN = "init", "run", "shutdown"


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    effect: str
    weight: int
    sources: tuple[str, ...]
    phases: tuple[str, ...]
    text: str


KINDS: dict[str, Kind] = {
    "sigkill": Kind(DEADLY, 22, (SELF, TIMER, DRIVER), (INIT, RUN, SHUTDOWN), "SIGKILL"),
    "sigsegv": Kind(DEADLY, 12, (SELF, TIMER, DRIVER), (INIT, RUN, SHUTDOWN), "SIGSEGV, SIGBUS, SIGABRT or SIGILL"),
    "sigterm": Kind(DEADLY, 5, (SELF, TIMER, DRIVER), (INIT, RUN), "SIGTERM"),
    "exit": Kind(DEADLY, 8, (SELF, TIMER), (INIT, RUN, SHUTDOWN), "the process ends without a word"),
    "leave": Kind(DEADLY, 7, (SELF,), (RUN,), "the script ends early, in good order"),
    "exception": Kind(ENDS, 10, (SELF,), (RUN,), "the script raises; hvd.shutdown() with operations in flight"),
    "freeze": Kind(ENDS, 5, (SELF, DRIVER), (RUN,), "SIGSTOP for longer than the heartbeat time-out"),
    "sockets": Kind(ENDS, 12, (SELF, TIMER), (INIT, RUN, SHUTDOWN), "one or all connections closed or shut down"),
    "stop": Kind(HARMLESS, 8, (SELF, DRIVER), (INIT, RUN, SHUTDOWN), "SIGSTOP, and SIGCONT in time"),
    "delay": Kind(HARMLESS, 6, (SELF,), (INIT, RUN, SHUTDOWN), "the rank sleeps between two operations"),
    "shm": Kind(OPEN, 5, (SELF,), (INIT,), "/dev/shm is full, or no shared memory may be had, or too little"),
}

# With --extended, besides: most of them need root.
EXTENDED: dict[str, Kind] = {
    "core": Kind(DEADLY, 6, (SELF, TIMER), (INIT, RUN, SHUTDOWN), "SIGSEGV, with a core file"),
    "pipe": Kind(DEADLY, 5, (SELF, TIMER), (RUN,), "SIGSEGV; somebody has put pipes where flight files go"),
    "disk": Kind(DEADLY, 3, (SELF, TIMER), (RUN,), "SIGSEGV; the file system of flight files is frozen for 3 s"),
    "descriptors": Kind(OPEN, 6, (SELF,), (INIT,), "the rank can open a few files more, or none"),
    "loss": Kind(HARMLESS, 8, (DRIVER,), (INIT, RUN), "the path loses 1 to 10 % of all packets for a while"),
    "lag": Kind(HARMLESS, 6, (DRIVER,), (INIT, RUN), "the path delays packets by 1 to 40 ms, and swaps them"),
    "cut": Kind(ENDS, 6, (DRIVER,), (RUN,), "the path loses everything"),
    "control": Kind(ENDS, 8, (DRIVER,), (RUN,), "the path changes control messages; under TLS, records"),
    "tensors": Kind(OPEN, 4, (DRIVER,), (RUN,), "the path changes tensors that are not authenticated"),
    "flood": Kind(HARMLESS, 8, (DRIVER,), (INIT,), "a stranger opens connections to all ports, as fast as it can"),
}
EVERY_KIND = KINDS | EXTENDED
# Faults of the network, of no rank.
ON_PATH = ("loss", "lag", "cut", "control", "tensors", "flood")
NO_RANK = -1

TRANSPORTS = ("shm", "tcp", "hosts")
PATH = "path"  # two hosts with networks of their own; see path.py
MOST_RANKS = 16


@dataclass(frozen=True)
class Fault:
    """One fault. `at` counts operations; `after` is in seconds, from there or from the start of the phase."""

    number: int
    kind: str
    rank: int
    phase: str
    source: str
    at: int = 0
    after: float = 0.0
    seconds: float = 0.0  # delay, stop: how long
    detail: str = ""

    @property
    def effect(self) -> str:
        """What it is for the others."""
        effect = EVERY_KIND[self.kind].effect
        # At the end others may be done with their operations, or not; at the start there may be connections, or not.
        either = self.phase == SHUTDOWN or (self.phase == INIT and self.kind == "sockets")
        return OPEN if either and effect != HARMLESS else effect

    def describe(self) -> str:
        """One line about it."""
        where = {INIT: "in init", RUN: f"at operation {self.at}", SHUTDOWN: "in shutdown"}[self.phase]
        how = {SELF: "", TIMER: " from a timer", DRIVER: " from outside"}[self.source]
        name = f"{self.kind} ({self.detail})" if self.detail else self.kind
        whom = "" if self.rank == NO_RANK else f" on rank {self.rank}"
        return f"{name}{whom} {where}{how}"


@dataclass(frozen=True)
class Round:
    """One generation."""

    number: int
    seed: str
    size: int
    transport: str
    rendezvous: str  # "port", "same port" or "folder"
    heartbeat_s: float
    start_timeout_s: float
    sets: list[list[int]]
    encrypt: bool
    faults: list[Fault] = field(default_factory=list)

    def to_json(self) -> dict:
        """As plain values."""
        return asdict(self)


def faults_from_json(values: Sequence[dict]) -> list[Fault]:
    """Undo the faults' part of `Round.to_json`."""
    return [Fault(**value) for value in values]


@dataclass(frozen=True)
class Options:
    """What the user chose."""

    seed: int = 1
    least_ranks: int = 2
    most_ranks: int = 4
    only: tuple[str, ...] = tuple(KINDS)
    transports: tuple[str, ...] = TRANSPORTS
    rounds: int = 4

    def repeat(self, job: int) -> str:
        """Return the command line that runs one job again."""
        command = f"python -m horovod.chaos --seed {self.seed} --job {job} --np {self.least_ranks}-{self.most_ranks}"
        if self.only == tuple(EVERY_KIND):
            return command + " --extended"
        if self.only != tuple(KINDS):
            command += f" --only {','.join(self.only)}"
        if self.transports != TRANSPORTS:
            command += f" --transport {','.join(self.transports)}"
        return command


def plan_job(options: Options, job: int) -> list[Round]:
    """Decide about all rounds of a job."""
    rng = random.Random(f"{options.seed} {job}")
    return [_round(options, rng, f"{options.seed} {job} {number}", number) for number in range(options.rounds)]


def _round(options: Options, rng: random.Random, seed: str, number: int) -> Round:
    size = rng.randint(options.least_ranks, options.most_ranks)
    only = list(options.only)
    count = rng.choices((1, 2, 3), (60, 25, 15))[0]
    kinds = [rng.choices(only, [EVERY_KIND[kind].weight for kind in only])[0] for _ in range(count)]
    if "tensors" in kinds:
        kinds = ["tensors"]  # what follows from wrong data nobody can tell from what follows from another fault
    if "control" in kinds:
        # Loss and lag make TCP send packets again: a changed packet may arrive unchanged, and the fault has no effect.
        kinds = [kind for kind in kinds if kind not in ("loss", "lag")]
    transport = rng.choice(options.transports)
    if "sockets" in kinds and transport == "shm":
        # There are no connections then; say so only where nothing else was asked for.
        transport = next((one for one in ("tcp", "hosts") if one in options.transports), "shm")
    if not set(ON_PATH).isdisjoint(kinds):
        transport = PATH
    faults = [_fault(rng, i, kind, size) for i, kind in enumerate(kinds)]
    if len({fault.rank for fault in faults if fault.kind == "freeze"}) == size:
        faults = faults[:1]  # somebody has to notice
    sets = [sorted(rng.sample(range(size), rng.randint(1, size - 1)))] if size > 1 and rng.random() < 0.6 else []
    return Round(
        number=number,
        seed=seed,
        size=size,
        transport=transport,
        rendezvous="port" if transport == PATH else rng.choice(("port", "same port", "folder")),
        # Short only where it decides how long the round takes: a rank may get no processor for a second.
        heartbeat_s=2.0 if "freeze" in kinds or "cut" in kinds else 10.0,
        start_timeout_s=4.0 if any(fault.phase == INIT and fault.effect != HARMLESS for fault in faults) else 30.0,
        sets=sets,
        encrypt=transport in ("hosts", PATH) and "tensors" not in kinds and rng.random() < 0.3,
        faults=faults,
    )


def _fault(rng: random.Random, number: int, kind: str, size: int) -> Fault:
    meaning = EVERY_KIND[kind]
    phase = RUN
    if RUN not in meaning.phases:
        phase = meaning.phases[0]
    elif rng.random() < 0.25:
        phase = rng.choice(meaning.phases)
    # Most things happen in the first few milliseconds of whatever they fall upon.
    after = rng.expovariate(200) if rng.random() < 0.5 else rng.uniform(0, 0.06)
    details = {
        "sigsegv": ["SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "null pointer"],
        "sockets": ["close one", "close all", "shut down one", "shut down all"],
        "shm": ["/dev/shm", "file size", "arena"],
    }
    source = rng.choice(meaning.sources)
    detail = rng.choice(details.get(kind, [""]))
    if detail == "null pointer" and source == DRIVER:
        detail = "SIGSEGV"
    if kind == "sockets" and phase != RUN:
        # Whoever opens and closes files at that time would get the number of one that is closed under its feet.
        source, detail = TIMER, detail.replace("close", "shut down")
    return Fault(
        number=number,
        kind=kind,
        rank=NO_RANK if kind in ON_PATH else rng.randrange(size),
        phase=phase,
        source=source,
        at=int(rng.expovariate(1 / 25)),
        after=after,
        seconds=rng.uniform(0.02, 0.3),
        detail=detail,
    )
