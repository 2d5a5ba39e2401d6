# SPDX-License-Identifier: Apache-2.0
"""`RunConfig` and `IPURunConfig`, the old names of the configuration."""

from __future__ import annotations

import dataclasses
from typing import Any

from horovod.tensorflow import estimator


class IPURunConfig:
    """Options of IPUs, which have no effect."""

    def __init__(self, *options: Any, **named: Any) -> None:
        self.options = options
        self.named = named


@dataclasses.dataclass(frozen=True)
class RunConfig(estimator.RunConfig):
    """
    RunConfig with a field for options of IPUs.

    >>> RunConfig(ipu_run_config=IPURunConfig(iterations_per_loop=10)).train_distribute is None
    True
    """

    ipu_run_config: Any = None
