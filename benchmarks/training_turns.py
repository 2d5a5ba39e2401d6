# SPDX-License-Identifier: Apache-2.0
"""What the ranks of benchmarks/training.py have in common."""

from __future__ import annotations

import statistics
from collections.abc import Callable


def in_turns(turns: int, figures: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Return the median of each figure; every turn measures all of them, one after the other."""
    times: dict[str, list[float]] = {name: [] for name in figures}
    for _ in range(turns):
        for name, measure in figures.items():
            times[name].append(measure())
    return {name: statistics.median(values) for name, values in times.items()}
