# SPDX-License-Identifier: Apache-2.0
"""What a training job needs to know of a compute job, and the file that holds it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import importlib.metadata
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from horovod.tensorflow.data.client import ComputeClient

_POLL_S = 0.2
# When the first line about a file that is not there comes, and when the next ones do.
_QUIET_S = 5.0
_AGAIN_S = 60.0
_SIDES = ("compute", "training")


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """
    A compute job: how many dispatchers and workers, where its registration service is, and the key to it.

    The key is a password: who has it can run code in the compute job. `write` makes a file that only its owner reads.

    >>> from horovod.tensorflow.data.compute_service import TfDataServiceConfig
    >>> config = TfDataServiceConfig(1, 4, "compute", {"lo": [["127.0.0.1", 1]]}, b"0123456789abcdef", timeout=60)
    >>> TfDataServiceConfig.from_dict(config.to_dict()) == config
    True
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Mapping[str, Any]
    key: bytes = dataclasses.field(repr=False)
    timeout: int = 60

    def __post_init__(self) -> None:
        if self.dispatcher_side not in _SIDES:
            raise ValueError(f"dispatcher_side={self.dispatcher_side!r}: it is 'compute' or 'training'")
        for name in ("dispatchers", "workers_per_dispatcher"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)!r}: give a whole number from 1 on")

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """
        Return a client of the registration service.

        >>> from horovod.tensorflow.data.compute_service import TfDataServiceConfig
        >>> config = TfDataServiceConfig(1, 4, "compute", {"lo": [["127.0.0.1", 1]]}, b"0123456789abcdef")
        >>> config.compute_client().ping()
        False
        """
        del verbose  # as in Horovod; this client writes nothing
        return ComputeClient(self.addresses, self.key, self.timeout)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON has them; the key in hexadecimal digits."""
        return {**dataclasses.asdict(self), "addresses": dict(self.addresses), "key": self.key.hex()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig:
        """Return the config of `to_dict`; fields that this release does not know are ignored."""
        fields = {
            field.name: config[field.name] for field in dataclasses.fields(TfDataServiceConfig) if field.name in config
        }
        missing = [
            name
            for name in ("dispatchers", "workers_per_dispatcher", "dispatcher_side", "addresses", "key")
            if name not in fields
        ]
        if missing:
            raise ValueError(f"this is no config of a data service: it has no {', '.join(missing)}")
        return TfDataServiceConfig(**{**fields, "key": bytes.fromhex(fields["key"])})

    def write(self, filename: str | os.PathLike[str]) -> None:
        """
        Write the file with mode 0600. It is complete when it appears, and replaces an older one.

        >>> import tempfile
        >>> from horovod.tensorflow.data.compute_service import TfDataServiceConfig
        >>> config = TfDataServiceConfig(1, 4, "compute", {"lo": [["127.0.0.1", 1]]}, b"0123456789abcdef")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     config.write(f"{folder}/compute.json")
        ...     TfDataServiceConfig.read(f"{folder}/compute.json") == config
        True
        """
        path = pathlib.Path(filename)
        fields = {**self.to_dict(), "tensorflow": tensorflow_version()}
        descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # of mode 0600
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(fields, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
            raise

    def remove(self, filename: str | os.PathLike[str]) -> None:
        """Remove the file if it still is the one of this compute job."""
        with contextlib.suppress(OSError, ValueError):
            if _read(filename).key == self.key:
                os.unlink(filename)

    @staticmethod
    def read(filename: str | os.PathLike[str], wait_for_file_creation: bool = False) -> TfDataServiceConfig:
        """
        Return the config in a file.

        With `wait_for_file_creation`, wait until there is a file whose compute job answers: one that an earlier job
        has left is waited over. Otherwise a missing file is a FileNotFoundError.
        """
        if not wait_for_file_creation:
            return _read(filename)
        name = os.fspath(filename)
        begun = time.monotonic()
        tell_at = begun
        while True:
            try:
                found = _read(filename)
            except FileNotFoundError:
                lack, patience = f"{name} is not there", _QUIET_S
            else:
                if found.compute_client().ping():
                    return found
                lack, patience = f"{name} is of a compute job that does not answer ({found.compute_client().name()})", 0
            now = time.monotonic()
            if now >= tell_at and now - begun >= patience:
                print(
                    f"hvd data service: {lack}; waiting for a compute job to write it, {now - begun:.0f} s so far",
                    file=sys.stderr,
                    flush=True,
                )
                tell_at = now + _AGAIN_S
            time.sleep(_POLL_S)


def tensorflow_version() -> str:
    """Return the version of the installed TensorFlow, which is not imported; "" if there is none."""
    for name in ("tensorflow", "tensorflow-cpu", "tensorflow_intel", "tf-nightly"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return ""


def check_version(filename: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Raise RuntimeError if the compute job has another release of TensorFlow: their services do not talk."""
    theirs, own = str(fields.get("tensorflow", "")), tensorflow_version()
    if theirs and own and theirs.split(".")[:2] != own.split(".")[:2]:
        raise RuntimeError(
            f"{os.fspath(filename)}: the compute job has TensorFlow {theirs} and this process {own}; "
            "a data service needs the same release on both sides"
        )


def _read(filename: str | os.PathLike[str]) -> TfDataServiceConfig:
    try:
        text = pathlib.Path(filename).read_text()
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT,
            "no compute job has written this file: start one, or pass wait_for_file_creation=True",
            os.fspath(filename),
        ) from None
    try:
        fields = json.loads(text)
        found = TfDataServiceConfig.from_dict(fields)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{os.fspath(filename)} is no config file of a data service: {error}") from None
    check_version(filename, fields)
    return found
