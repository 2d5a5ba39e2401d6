# SPDX-License-Identifier: Apache-2.0
"""
Where the library is that gives ranks the arena heap: ``python -m horovod.heap`` prints its path.

``horovodrun --heap arena`` preloads it into ranks. Under another launcher set LD_PRELOAD for the ranks yourself, as in
``mpirun -x LD_PRELOAD=$(python -m horovod.heap) python train.py``.
"""

from __future__ import annotations

import pathlib
import sys

from horovod.common.library import package_folders

NAME = "libhvd_heap.so"


def find() -> pathlib.Path | None:
    """
    Return the library's path, or None where the package was built without it.

    >>> find().name
    'libhvd_heap.so'
    """
    candidates = [folder / "lib" / NAME for folder in package_folders()]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def main() -> int:
    """Print the path."""
    library = find()
    if library is None:
        print(f"{NAME} is not in this installation: install the hvd package again", file=sys.stderr)
        return 1
    print(library)
    return 0


if __name__ == "__main__":
    sys.exit(main())
