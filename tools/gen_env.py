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

Read once, by `hvd.init()`. This file is made by `make docs` from src/hvd/base/config.cc and variables.cc.
`HVD_LIBRARY` is the path of a libhvd.so for Python to load instead of the installed one.

"""


def text() -> str:
    """Return what the file must hold."""
    return HEADER + load().hvd_describe_config().decode()


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
