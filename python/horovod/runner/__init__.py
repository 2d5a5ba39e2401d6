# SPDX-License-Identifier: Apache-2.0
"""
Starting jobs from Python: ``horovod.run`` runs a function on several ranks and returns what it returned on each.

The work is done by ``horovodrun``, the program that comes with this package; see docs/guides/launching.md.
"""

from horovod.runner.api import run

__all__ = ["run"]
