# SPDX-License-Identifier: Apache-2.0
"""What every rank of horovod.run executes: ``python -m horovod.runner.run_task FOLDER``."""

import os
import sys

from horovod.runner import task

# Of horovodrun, and of the mpiruns that it may start.
RANKS = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def rank() -> int:
    """Return the rank of this process; in an elastic job, the one that it has now."""
    return int(next(os.environ[name] for name in RANKS if os.environ.get(name)))


if __name__ == "__main__":
    sys.exit(task.work(sys.argv[1], rank))
