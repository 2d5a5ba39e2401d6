# SPDX-License-Identifier: Apache-2.0
"""Functions that select IPUs; without IPUs they select nothing."""

from __future__ import annotations

from typing import Any


def create_ipu_config(*options: Any, **named: Any) -> dict[str, Any]:
    """Return options of IPUs, which have no effect."""
    return dict(named)


def auto_select_ipus(opts: Any, num_ipus: Any = 1) -> Any:
    """Return the options unchanged. Raises ValueError for several devices, because each rank has one."""
    if num_ipus != 1:
        raise ValueError(f"num_ipus={num_ipus}: each rank has one device; start a rank for each")
    return opts


def configure_ipu_system(config: Any = None, device: str = "cpu") -> None:
    """Do nothing."""
