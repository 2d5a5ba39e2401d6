# SPDX-License-Identifier: Apache-2.0
"""What programs import of Horovod's network module."""

from __future__ import annotations


class NoValidAddressesFound(Exception):
    """
    No address of a service could be reached. hvd itself raises errors of its own, which name host and port.

    >>> from horovod.runner.common.util.network import NoValidAddressesFound
    >>> issubclass(NoValidAddressesFound, Exception)
    True
    """
