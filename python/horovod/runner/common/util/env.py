# SPDX-License-Identifier: Apache-2.0
"""Rank and size as launchers put them into the environment, for programs that do not call `init`."""

from __future__ import annotations

import os

# In the order in which they are believed: horovodrun's own, those of mpirun, of PMI and of srun.
_PAIRS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def get_env_rank_and_size() -> tuple[int, int]:
    """
    Return this process's rank and the number of ranks, as the environment has them; (0, 1) if no launcher set any.

    ValueError if a variable is no number.

    >>> from horovod.runner.common.util.env import get_env_rank_and_size
    >>> rank, size = get_env_rank_and_size()
    >>> 0 <= rank < size
    True
    """
    for names in _PAIRS:
        texts = [os.environ.get(name) for name in names]
        if all(texts):
            return _number(names[0], texts[0]), _number(names[1], texts[1])
    return 0, 1


def _number(name: str, text: str | None) -> int:
    try:
        return int(text or "")
    except ValueError:
        raise ValueError(f"{name}={text!r} is no number: unset it, or let the launcher set it") from None
