# SPDX-License-Identifier: Apache-2.0
"""
Writes docs/reference/environment.md from the library's own table of variables.

`--check` only says whether the file is current.
"""

from __future__ import annotations

import pathlib
import sys

from horovod.common.library import load

TARGET = pathlib.Path(__file__).resolve().parent.parent / "docs" / "reference" / "environment.md"
HEADER = """# Environment variables

Read once, by `hvd.init()`. This file is made by `make docs` from src/hvd/base/config.cc.

"""
FOOTER = """
Variables that the Python package alone reads:

| variable | default | meaning |
|---|---|---|
| `HOROVOD_COMPAT` | 1 | Bridges for old programs; 0: none, 1: for Keras 2, tf1: for TensorFlow 1, too (`--compat`). |
| `HOROVOD_HEAP` | system | Where large blocks of malloc of ranks lie: `arena` or `system` (`--heap`). |
| `HOROVOD_SPARK_START_TIMEOUT` | 600 | Seconds that Spark has to start all tasks of `horovod.spark.run`. |
| `HVD_LIBRARY` | unset | Path of the libhvd.so to load instead of the installed one. |
"""


def text() -> str:
    """Return what the file must hold."""
    return HEADER + load().hvd_describe_config().decode() + FOOTER


def main() -> int:
    """Command line."""
    if "--check" in sys.argv[1:]:
        current = TARGET.exists() and TARGET.read_text() == text()
        if not current:
            print(f"{TARGET} is out of date: run make docs", file=sys.stderr)
        return 0 if current else 1
    TARGET.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
