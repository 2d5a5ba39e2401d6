# SPDX-License-Identifier: Apache-2.0
"""What RayExecutor.create_settings returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass
class MiniSettings:
    """
    Settings of a RayExecutor.

    Ranks are started by Ray and not by ssh, so `key`, `ssh_port`, `ssh_identity_file` and `verbose` have no effect.
    """

    nics: str | Sequence[str] | None = None
    verbose: int = 1
    key: str | None = None
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    timeout_s: float = 300  # for the start of the actors, once Ray has reserved their resources
    placement_group_timeout_s: float = 100  # for Ray to reserve the resources
    elastic: bool = False
