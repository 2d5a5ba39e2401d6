# SPDX-License-Identifier: Apache-2.0
"""Pictures of a run: latency and bandwidth over size, speed against the best peer, and what more ranks do."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from bars import size_name
from contenders import (
    FLOOR_DIRECT,
    GLOO,
    HVD_ARENA,
    HVD_MIXED,
    HVD_PRIVATE,
    KIB,
    MEMORY_LIMIT,
    MIB,
    MPICH,
    OPEN_MPI,
    ROOT,
)
from measure import Comparison, say
from scenarios import MANY, PAIR

PEERS = (OPEN_MPI, MPICH, GLOO)
COLOURS = {
    HVD_ARENA: "#c0392b",
    HVD_PRIVATE: "#e67e22",
    HVD_MIXED: "#d4ac0d",
    OPEN_MPI: "#1f618d",
    MPICH: "#5dade2",
    GLOO: "#7d8a96",
    FLOOR_DIRECT: "#27ae60",
    MEMORY_LIMIT: "#145a32",
}


def folder_for(markdown: Path) -> Path:
    """Beside the pages where the table goes into one of them, else with the other results."""
    docs = ROOT / "docs"
    return docs / "images" if markdown.resolve().is_relative_to(docs) else ROOT / "build" / "bench"


def medians(comparison: Comparison, name: str, least: int = 0) -> dict[int, float]:
    """Microseconds by size."""
    found = {size: comparison.times(name, size) for size in comparison.scenario.sizes if size >= least}
    return {size: statistics.median(times) for size, times in found.items() if times}


def against_best_peer(comparison: Comparison, name: str) -> dict[int, float]:
    """How many times as fast as the fastest peer, within a repetition."""
    peers = tuple(peer for peer in PEERS if peer in comparison.launches)
    found = {size: comparison.ratios(name, peers, size) for size in comparison.scenario.sizes}
    return {size: 1 / statistics.median(ratios) for size, ratios in found.items() if ratios}


def scaling(comparisons: dict[str, Comparison], name: str, size: int) -> dict[int, float]:
    """GB/s by the number of ranks."""
    found = {}
    for ranks, scenario in {2: PAIR, **MANY}.items():
        times = comparisons[scenario].times(name, size) if scenario in comparisons else []
        if times:
            found[ranks] = size / statistics.median(times) / 1e3
    return found


def curves(axes, lines: dict[str, dict[int, float]], ylabel: str, by_size: bool = True) -> None:
    ticks: set[int] = set()
    for name, values in lines.items():
        if values:
            axes.plot(list(values), list(values.values()), "o-", ms=3, label=name, color=COLOURS.get(name))
            ticks.update(values)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(ticks), [size_name(tick) if by_size else str(tick) for tick in sorted(ticks)], fontsize=7)
    axes.minorticks_off()
    axes.set_xlabel("bytes per rank" if by_size else "ranks")
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


def draw(comparisons: list[Comparison], markdown: Path) -> list[str]:
    """Writes the pictures and returns their paths relative to the page. None without matplotlib."""
    by_name = {comparison.scenario.name: comparison for comparison in comparisons}
    if PAIR not in by_name:
        return []
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        say("no pictures: matplotlib is not installed; pip install -r tools/requirements-bench.txt")
        return []
    pair = by_name[PAIR]
    shown = [name for name in COLOURS if name in pair.launches]
    folder = folder_for(markdown)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []

    def picture(name: str, title: str, lines: dict[str, dict[int, float]], ylabel: str, by_size: bool = True, **scale):
        if not any(lines.values()):
            return
        figure, axes = pyplot.subplots(figsize=(7, 4), dpi=110)
        curves(axes, lines, ylabel, by_size)
        axes.set_title(title, fontsize=9)
        if "yscale" in scale:
            axes.set_yscale(scale["yscale"])
        if "line" in scale:
            axes.axhline(scale["line"], color="black", lw=0.8)
        figure.tight_layout()
        path = folder / f"{name}.png"
        figure.savefig(path, metadata={"Software": None})
        pyplot.close(figure)
        paths.append(os.path.relpath(path, markdown.resolve().parent))

    def rates(name: str) -> dict[int, float]:
        return {size: size / us / 1e3 for size, us in medians(pair, name, 16 * KIB).items()}

    title = f"float32 {PAIR}, fresh data"
    picture("allreduce-latency", title, {n: medians(pair, n) for n in shown}, "µs", yscale="log")
    picture("allreduce-bandwidth", title, {n: rates(n) for n in shown}, "GB/s")
    ratios = {n: against_best_peer(pair, n) for n in (HVD_ARENA, HVD_PRIVATE, HVD_MIXED) if n in pair.launches}
    picture(
        "allreduce-ratio",
        title,
        ratios,
        "speed / best of " + ", ".join(peer for peer in PEERS if peer in pair.launches),
        line=1,
    )
    grown = {n: scaling(by_name, n, MIB) for n in (HVD_ARENA, HVD_PRIVATE, OPEN_MPI, FLOOR_DIRECT)}
    picture("allreduce-ranks", "float32 allreduce of 1 MiB on one host", grown, "GB/s", by_size=False)
    return paths
