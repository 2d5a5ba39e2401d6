# SPDX-License-Identifier: Apache-2.0
"""The exceptions of all modules. `horovod.common.status` decides which one a failure becomes."""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """A collective operation failed: a peer was lost or left, or the ranks disagree about it."""


class HorovodTimeoutError(HorovodInternalError, TimeoutError):
    """A time-out expired: some rank did not start, or did not submit an operation, in the time that the caller set."""


class HorovodInitError(HorovodInternalError, ValueError):
    """`init` failed although its arguments are good: a peer was lost, or the ranks disagree about the job."""


class HorovodSyncError(RuntimeError):
    """The ranks hold different values of a variable. Every rank raises it in the same step."""


class HorovodUnsupportedError(NotImplementedError, ValueError):
    """A part of the API that this release does not have yet."""


class HostsUpdatedInterrupt(RuntimeError):
    """
    The set of hosts changed during elastic training.

    `skip_sync` is true when only hosts were removed, so that no state has to be sent to newcomers.
    """

    def __init__(self, skip_sync: bool) -> None:
        super().__init__("hosts were updated")
        self.skip_sync = skip_sync


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Say that `name` was built against one version of a framework and runs with another."""
    return (
        f"This package was built against {name} {version}, but {name} {installed_version} is installed. "
        f"Install {name} {version}, or build this package again."
    )


class HorovodVersionMismatchError(ImportError):
    """A framework's version differs from the one that the package was built against."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version
