# SPDX-License-Identifier: Apache-2.0
"""
Ranks in the actors of Ray: a RayExecutor starts them, and runs functions on them.

Importing this module imports nothing of Ray; see docs/guides/ray.md.
"""

from horovod.ray.runner import RayExecutor
from horovod.ray.worker import BaseHorovodWorker

__all__ = ["RayExecutor", "BaseHorovodWorker"]
