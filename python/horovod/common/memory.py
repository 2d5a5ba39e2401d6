# SPDX-License-Identifier: Apache-2.0
"""Memory of the library as an owner object that NumPy (or anything that knows the array interface) can wrap."""

from __future__ import annotations

from horovod.common.library import load
from horovod.common.status import exception


class Block:
    """
    `bytes` bytes at `address`, given back to the library when the last array over them is gone.

    Such memory is reachable by all ranks of the host, so operations on it copy nothing. It outlives `shutdown`.
    """

    # The function is a member because module globals may already be gone when the interpreter ends.
    __slots__ = ("address", "bytes", "_free")

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.bytes = size
        self._free = load().hvd_free

    @property
    def __array_interface__(self) -> dict:
        return {"version": 3, "typestr": "|u1", "shape": (self.bytes,), "data": (self.address, False)}

    def __del__(self) -> None:
        self._free(self.address)


def allocate(size: int) -> Block:
    """Return zeroed, 64-byte aligned memory. Raises MemoryError when the arena is full."""
    library = load()
    address = library.hvd_alloc(size)
    if not address:
        raise exception(library.hvd_last_status())
    return Block(address, size)


def allocate_output(size: int) -> Block:
    """
    Return memory for a result, aligned to 64 bytes and not zeroed.

    Memory that was freed serves the next result, so its pages need not be faulted in again.
    """
    library = load()
    address = library.hvd_alloc_output(size)
    if not address:
        raise MemoryError(f"no memory for a result of {size} bytes")
    return Block(address, size)
