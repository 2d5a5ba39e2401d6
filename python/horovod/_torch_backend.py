# SPDX-License-Identifier: Apache-2.0
"""
Makes the backend "hvd" known to torch.distributed without an import of this package.

PyTorch calls `register` at the end of `import torch` (entry point group torch.backends, PyTorch 2.5 and newer), and
when a program asks for the backend (group torch.distributed.backends, 2.14 and newer). An exception here would break
`import torch` for every program, so nothing of horovod.torch is loaded before the first process group is made.
"""

from __future__ import annotations

from typing import Any

NAME = "hvd"


def register() -> None:
    """Make the backend known; once. PyTorch without torch.distributed goes without."""
    import torch.distributed as dist

    if dist.is_available() and not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, _create, devices=["cpu"])


def _create(*arguments: Any) -> Any:
    from horovod.torch.backend import create

    return create(*arguments)
