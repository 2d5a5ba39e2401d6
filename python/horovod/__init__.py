# SPDX-License-Identifier: Apache-2.0
"""
Data-parallel training with the Horovod API.

Import the module of your framework, for example ``import horovod.numpy as hvd``. ``horovod.run`` starts a function on
several processes.
"""

from horovod.runner import run

try:
    from horovod._version import __version__
except ImportError:  # A source tree that was never installed has no generated file; the library knows.
    from horovod.common.library import load

    __version__ = load().hvd_version().decode()

__all__ = ["__version__", "run"]
