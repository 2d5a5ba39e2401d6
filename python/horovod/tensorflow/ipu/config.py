# SPDX-License-Identifier: Apache-2.0
"""Options of IPUs as attributes; they have no effect."""

from __future__ import annotations

from typing import Any

from horovod.tensorflow.ipu import utils


class Options:
    """Options in groups; reading a group that does not exist makes it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        made = Options()
        setattr(self, name, made)
        return made


class IPUConfig(Options):
    """
    Options by name. Each rank has one device, so `auto_select_ipus` is 1 or is not set.

    >>> options = IPUConfig()
    >>> options.auto_select_ipus = 1
    >>> options.device_connection.version = "ipu2"
    >>> options.configure_ipu_system()
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "auto_select_ipus":
            utils.auto_select_ipus(self, value)
        super().__setattr__(name, value)

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """Do nothing."""


def configure_ipu_system(config: Any, device: str = "cpu", reset_configuration: bool = True) -> None:
    """Do nothing."""


def reset_ipu_configuration() -> None:
    """Do nothing."""
