# SPDX-License-Identifier: Apache-2.0
"""The one place where status codes of the C library become exceptions."""

from __future__ import annotations

from horovod.common import abi
from horovod.common.exceptions import (
    HorovodInitError,
    HorovodInternalError,
    HorovodTimeoutError,
    HorovodUnsupportedError,
)
from horovod.common.library import load

_EXCEPTIONS: dict[int, type[Exception]] = {
    abi.UNKNOWN: HorovodInternalError,
    abi.INVALID_ARGUMENT: ValueError,
    abi.DEADLINE_EXCEEDED: HorovodTimeoutError,
    abi.NOT_FOUND: LookupError,
    abi.PERMISSION_DENIED: PermissionError,
    # Memory is short on this machine: elastic training must not answer that by trying again.
    abi.RESOURCE_EXHAUSTED: MemoryError,
    abi.FAILED_PRECONDITION: HorovodInternalError,
    abi.ABORTED: HorovodInternalError,
    abi.UNIMPLEMENTED: HorovodUnsupportedError,
    abi.INTERNAL: HorovodInternalError,
}

NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."

_NOT_IN_RUN = (
    "this process comes to a running elastic job and joins it in hvd.elastic.run, so no operation can be done before: "
    "leave broadcasts to hvd.elastic.run, which gives every rank the state of rank 0"
)
_FORKED = "this process was forked"

_expects_run = False


def expect_run(value: bool) -> None:
    """Note whether this process waits for its training function before it joins a job; errors say so."""
    global _expects_run
    _expects_run = value


def expects_run() -> bool:
    """Whether this process comes to a running elastic job and has not joined yet."""
    return _expects_run


def last_error() -> str:
    """Text of this thread's last failure."""
    return load().hvd_last_error().decode("utf-8", "replace")


def exception(code: int) -> Exception:
    """Make the exception for a failure that a call on this thread just returned."""
    text = last_error() or f"the library returned status {code} without a text"
    if code == abi.FAILED_PRECONDITION and "has not been initialized" in text:
        if _expects_run:
            return ValueError(_NOT_IN_RUN)
        return ValueError(text if "hvd.init()" in text else NOT_INITIALIZED)
    return _EXCEPTIONS.get(code, HorovodInternalError)(text)


def forked() -> bool:
    """Whether this thread's last failure was that the process is a forked child, where no call works."""
    return _FORKED in last_error()


def check(code: int) -> None:
    """Raise what `code` stands for; do nothing for success."""
    if code != abi.OK:
        raise exception(code)


def init_exception(code: int) -> Exception:
    """As `exception`, for `init`, whose failures are ValueErrors as well."""
    error = exception(code)
    return HorovodInitError(*error.args) if type(error) is HorovodInternalError else error
