# SPDX-License-Identifier: Apache-2.0
"""Device names of IPUs."""

from __future__ import annotations


def found(device: str | None) -> str | None:
    """
    Return the name of a device, or None, the default device, for an IPU.

    >>> found("/device:CPU:0"), found("/device:IPU:0")
    ('/device:CPU:0', None)
    """
    return None if device is None or "IPU" in device.upper() else device
