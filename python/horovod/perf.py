# SPDX-License-Identifier: Apache-2.0
"""
What the command ``hvd_perf`` runs: the program of that name in this package, beside the library that it measures.

``hvd_perf --help`` says what it measures; docs/operate/benchmarks.md has examples.
"""

from __future__ import annotations

import os
import pathlib
import platform
import sys

from horovod.common.library import package_folders

NAME = "hvd_perf"


def find() -> pathlib.Path | None:
    """
    Return the program's path, or None where the package was built without it.

    >>> find().name
    'hvd_perf'
    """
    candidates = [folder / "lib" / NAME for folder in package_folders()]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def why_not(program: pathlib.Path, error: OSError) -> str:
    """Return what a user can do about a program that the kernel refuses to start."""
    if isinstance(error, FileNotFoundError):
        reason = "it needs the GNU C library, which this system does not have"
    elif isinstance(error, PermissionError):
        reason = "it may not be executed: the file lost its mode, or its file system is mounted noexec"
    else:
        reason = f"{error.strerror}: it was built for another kind of machine than this one ({platform.machine()})"
    return (
        f"{program} does not run here: {reason}. Install the hvd package for this platform, or from its sources; "
        f"`python -m horovod.benchmark` needs no program."
    )


def main() -> None:
    """Become the program, with the arguments of this one."""
    program = find()
    if program is None:
        sys.exit(f"{NAME}: this package was built without it (HVD_BUILD_TOOLS=OFF): install one that has it")
    try:
        os.execv(program, [NAME, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{NAME}: {why_not(program, error)}")


if __name__ == "__main__":
    main()
