# SPDX-License-Identifier: Apache-2.0
"""
Data-parallel training with the Horovod API.

Import the module of your framework, for example ``import horovod.numpy as hvd``. ``horovod.run`` starts a function on
several processes.

PyTorch imports this package at the end of every ``import torch`` (horovod._torch_backend), so names are loaded when
they are used: what is wrong with an installation must not break programs that never use it.
"""

import contextlib
from typing import TYPE_CHECKING, Any

from horovod import _missing
from horovod.common.library import warn_of_other_distributions

if TYPE_CHECKING:
    from horovod.runner import run

_missing.register()
warn_of_other_distributions()

# A source tree that was never installed has no generated file; the library knows the version.
with contextlib.suppress(ImportError):
    from horovod._version import __version__


def __getattr__(name: str) -> Any:
    if name in ("run", "runner"):
        import horovod.runner

        return horovod.runner.run if name == "run" else horovod.runner
    if name == "__version__":
        from horovod.common.library import load

        return load().hvd_version().decode()
    raise AttributeError(f"module 'horovod' has no attribute '{name}'")


__all__ = ["__version__", "run"]
