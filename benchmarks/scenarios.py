# SPDX-License-Identifier: Apache-2.0
"""What is measured: scenarios, each with its contenders, which are started in turns so that they may be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from contenders import (
    FLOOR_DIRECT,
    FLOOR_SLOTS,
    FLOOR_STAGED,
    GLOO,
    HVD_ARENA,
    HVD_MIXED,
    HVD_NUMPY,
    HVD_PRIVATE,
    HVD_STEP,
    KIB,
    MEMORY_LIMIT,
    MIB,
    MPICH,
    OPEN_MPI,
    OPEN_MPI_TUNED,
    Contender,
    Unavailable,
    floor,
    gloo,
    hvd,
    hvd_step,
    memory_limit,
    mpich,
    numpy_calls,
    open_mpi,
)

SIZES = [4, KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB]
QUICK_SIZES = [4, KIB, 16 * KIB, 64 * KIB, MIB, 16 * MIB]
LARGE_SIZES = [64 * MIB, 256 * MIB]
CROWDED_SIZES = [4, KIB, 16 * KIB, 64 * KIB, MIB]
BLOCK_SIZES = [64 * KIB, 256 * KIB, MIB]

PAIR = "allreduce, 2 ranks"
LARGE = "allreduce, 2 ranks, large"
MANY = {4: "allreduce, 4 ranks", 8: "allreduce, 8 ranks"}
OTHERS = {op: f"{op}, 2 ranks" for op in ("reducescatter", "allgather", "broadcast", "alltoall")}
STEP = "161 operations of 4 B, all cached, 2 ranks"
NUMPY = "4 B from NumPy, 2 ranks"


@dataclass
class Scenario:
    """One operation on so many ranks, and who does it."""

    name: str
    sizes: list[int]
    op: str = "allreduce"
    ranks: int = 2
    contenders: list[Contender] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  # who cannot run here, and why

    def add(self, name: str, make: Callable[[], Contender]) -> None:
        try:
            self.contenders.append(make())
        except Unavailable as reason:
            self.missing[name] = str(reason)


def allreduce(name: str, ranks: int, sizes: list[int], program: Path, who: list[str]) -> Scenario:
    """These contenders, in this order."""
    makers = {
        HVD_ARENA: lambda: hvd(HVD_ARENA, program, ranks, sizes),
        HVD_PRIVATE: lambda: hvd(HVD_PRIVATE, program, ranks, sizes),
        HVD_MIXED: lambda: hvd(HVD_MIXED, program, ranks, sizes),
        OPEN_MPI: lambda: open_mpi(ranks, sizes),
        OPEN_MPI_TUNED: lambda: open_mpi(ranks, sizes, segmented_ring=True),
        MPICH: lambda: mpich(ranks, sizes),
        GLOO: lambda: gloo(ranks, sizes),
        FLOOR_DIRECT: lambda: floor(FLOOR_DIRECT, ranks, sizes),
        FLOOR_STAGED: lambda: floor(FLOOR_STAGED, ranks, sizes),
        FLOOR_SLOTS: lambda: floor(FLOOR_SLOTS, ranks, sizes),
        MEMORY_LIMIT: lambda: memory_limit(sizes),
    }
    scenario = Scenario(name, sizes, ranks=ranks)
    for contender in who:
        scenario.add(contender, makers[contender])
    return scenario


def other_operation(op: str, sizes: list[int], program: Path) -> Scenario:
    scenario = Scenario(OTHERS[op], sizes, op)
    scenario.add(HVD_ARENA, lambda: hvd(HVD_ARENA, program, 2, sizes, op))
    scenario.add(OPEN_MPI, lambda: open_mpi(2, sizes, op))
    scenario.add(HVD_PRIVATE, lambda: hvd(HVD_PRIVATE, program, 2, sizes, op))
    return scenario


def all_scenarios(program: Path, quick: bool, full: bool) -> list[Scenario]:
    """The pair first: it has the most goals, and what is compared there has the most contenders."""
    pair = [HVD_ARENA, MEMORY_LIMIT, OPEN_MPI, HVD_PRIVATE, FLOOR_DIRECT, HVD_MIXED, FLOOR_STAGED, MPICH, GLOO]
    many = [HVD_ARENA, OPEN_MPI, HVD_PRIVATE, FLOOR_DIRECT, FLOOR_SLOTS]
    large = [HVD_ARENA, MEMORY_LIMIT, OPEN_MPI_TUNED, HVD_PRIVATE, OPEN_MPI, FLOOR_DIRECT]
    if quick:
        pair.remove(FLOOR_STAGED)
        pair.remove(MPICH)
        many.remove(FLOOR_SLOTS)
    step = Scenario(STEP, [4])
    step.add(HVD_STEP, lambda: hvd_step(program))
    calls = Scenario(NUMPY, [4])
    calls.add(HVD_NUMPY, numpy_calls)
    scenarios = [
        allreduce(PAIR, 2, QUICK_SIZES if quick else SIZES, program, pair),
        step,
        calls,
        *(other_operation(op, BLOCK_SIZES, program) for op in OTHERS),
        *(allreduce(name, ranks, CROWDED_SIZES, program, many) for ranks, name in MANY.items()),
    ]
    if full:
        scenarios.append(allreduce(LARGE, 2, LARGE_SIZES, program, large))
    return scenarios
