# SPDX-License-Identifier: Apache-2.0
"""What every rank of horovod.run executes: ``python -m horovod.runner.run_task FOLDER``."""

import os
import sys

from horovod.runner import task

if __name__ == "__main__":
    sys.exit(task.work(sys.argv[1], int(os.environ["HOROVOD_RANK"])))
