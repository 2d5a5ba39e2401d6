# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libhvd.so, once per process."""

from __future__ import annotations

import ctypes
import os
import pathlib
import threading
import warnings

from horovod.common import abi

NAME = "libhvd.so"
REMEDY = "pip uninstall -y horovod hvd, then install hvd again"

_lock = threading.Lock()
_library: ctypes.CDLL | None = None


def load() -> ctypes.CDLL:
    """Return the library with its prototypes set. Raises ImportError with what to do when it cannot be used."""
    global _library
    if _library is not None:
        return _library
    with _lock:
        if _library is None:
            _library = _open(_find())
    return _library


def package_folders() -> list[pathlib.Path]:
    """All folders of this package: an editable installation has two, the library's and the sources'."""
    import horovod

    return [pathlib.Path(folder) for folder in horovod.__path__]


def _find() -> pathlib.Path:
    override = os.environ.get("HVD_LIBRARY")
    if override:
        if not pathlib.Path(override).is_file():
            raise ImportError(f"HVD_LIBRARY={override} names no file. Correct it or unset it.")
        return pathlib.Path(override)
    candidates = [folder / "lib" / NAME for folder in package_folders()]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    places = ", ".join(str(candidate.parent) for candidate in candidates)
    raise ImportError(
        f"{NAME} was not found in {places}: the package was not built. Install it with `pip install .` in its source "
        f"folder, or set HVD_LIBRARY to the file."
    )


def _open(path: pathlib.Path) -> ctypes.CDLL:
    try:
        # CDLL releases Python's lock during each call. RTLD_LOCAL keeps symbols from the frameworks in this process.
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        found = library.hvd_abi_version()
    except (OSError, AttributeError) as error:
        raise ImportError(f"{path} cannot be used: {error}. Reinstall the hvd package.") from error
    if found != abi.ABI_VERSION:
        raise ImportError(
            f"{path} speaks version {found} of the C interface, this Python package version {abi.ABI_VERSION}: "
            f"they come from different releases. Reinstall the hvd package, or unset HVD_LIBRARY."
        )
    for name, (result, arguments) in abi.PROTOTYPES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


def find_other_distributions(folders: list[pathlib.Path]) -> list[pathlib.Path]:
    """
    Return what another distribution of Horovod has installed in the package's folders.

    These are the record of a distribution named horovod that has modules, and files that only upstream's build writes.
    The distribution named horovod that `make wheel` makes has no modules.
    """
    records = [record for folder in folders for record in folder.parent.glob("horovod-*.dist-info/RECORD")]
    found = [record.parent for record in records if "\nhorovod/__init__.py," in "\n" + record.read_text()]
    patterns = ("metadata.json", "*/mpi_lib*.so")
    return sorted(found) + sorted(file for folder in folders for pattern in patterns for file in folder.glob(pattern))


def warn_of_other_distributions() -> None:
    """Warn if another distribution of Horovod is installed in the package's folders."""
    found = find_other_distributions(package_folders())
    if found:
        warnings.warn(
            f"Another Horovod is installed in the folder of hvd ({found[0]}{' and others' if len(found) > 1 else ''}); "
            f"the two overwrite each other's files. Run: {REMEDY}.",
            RuntimeWarning,
            stacklevel=3,
        )
