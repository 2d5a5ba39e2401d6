# SPDX-License-Identifier: Apache-2.0
"""
Whether all ranks hold the same values: checksums of the ranks' arrays, compared by one small operation.

Only if checksums differ, the ranks exchange what tells which array is the first that differs, on which ranks, and how
much. Frameworks bring arrays with names; this module knows no framework.

Thread safety: a Watch belongs to the operations of one list of arrays, which run one after the other; everything else
may be called from any thread.
"""

from __future__ import annotations

import os
import warnings
import weakref
import zlib
from collections.abc import Sequence
from typing import Callable, NamedTuple

import numpy as np

from horovod.common import abi, request
from horovod.common.exceptions import HorovodInternalError, HorovodSyncError
from horovod.common.objects import allgather_object
from horovod.common.operation import Operation
from horovod.common.process_sets import ProcessSet, global_process_set, id_of, ranks_of

VARIABLE = "HOROVOD_CHECK_SYNC"

# A named array; a function, so that values that nobody looks at are not read.
Named = tuple[str, Callable[[], np.ndarray]]

_SAMPLES = 64  # values of each array that ranks show each other
_REAL = 1e-3  # relative difference from which values are no longer equal but for rounding
# Without HOROVOD_CHECK_SYNC: the steps that are checked as long as the ranks differ. The first one warns, the last one
# raises: some right programs apply an optimizer several times before they broadcast.
_LOOKS = (2, 4, 8)

_ADVICE = (
    "Every rank must begin with the same values: after the first step, call "
    "hvd.broadcast_variables(model.variables, root_rank=0), or give model.fit the callback "
    "hvd.callbacks.BroadcastGlobalVariablesCallback(0)"
)


class Difference(NamedTuple):
    """The first array that differs between the ranks."""

    text: str
    is_real: bool  # more than rounding


def check_in_sync(
    arrays: Sequence[Named], name: str, process_set: ProcessSet = global_process_set, advice: str = _ADVICE
) -> None:
    """Raise HorovodSyncError on all ranks of the set, with the first array that differs, unless all are equal."""
    difference = compare(arrays, name, process_set)
    if difference is not None:
        raise HorovodSyncError(f"{difference.text}. {advice}")


def compare(arrays: Sequence[Named], name: str, process_set: ProcessSet = global_process_set) -> Difference | None:
    """Return the first array that differs, the same on all ranks of the set; None if all arrays are equal."""
    identifier = id_of(process_set)
    values = [(label, np.ascontiguousarray(read())) for label, read in arrays]
    sums = [zlib.crc32(value.reshape(-1).view(np.uint8)) if value.size else 0 for _, value in values]
    digest = zlib.crc32(np.array(sums, np.uint32).tobytes())
    if _agree([len(sums), digest, sum(sums)], name, identifier):
        return None
    own = [_describe(label, value, checksum) for (label, value), checksum in zip(values, sums)]
    try:
        return _first_difference(allgather_object(own, name, process_set), ranks_of(identifier))
    except HorovodInternalError as error:  # some ranks have joined, or one was lost meanwhile
        return Difference(f"the ranks hold different values; which one differs is not known: {error}", True)


def _agree(numbers: list[int], name: str, identifier: int) -> bool:
    """Return whether all ranks brought the same numbers: the least of them are then the greatest, too."""
    own = np.array([*numbers, *(~number for number in numbers)], np.int64)
    least = np.empty_like(own)
    operation = Operation(
        op=abi.ALLREDUCE,
        process_set=identifier,
        dtype=abi.DTYPES["int64"],
        shape=own.shape,
        source=(own.ctypes.data, own.nbytes),
        target=(least.ctypes.data, least.nbytes),
        reduce_op=abi.MIN,
    )
    request.run(operation.named("allreduce", name), (own, least))
    smallest, greatest = np.split(least, 2)
    return bool((smallest == ~greatest).all())


class _Description(NamedTuple):
    name: str
    shape: tuple[int, ...]
    dtype: str
    checksum: int
    samples: np.ndarray


def _describe(name: str, value: np.ndarray, checksum: int) -> _Description:
    flat = value.reshape(-1)
    places = np.linspace(0, max(flat.size - 1, 0), min(_SAMPLES, flat.size)).astype(np.int64)
    return _Description(name, value.shape, value.dtype.name, checksum, flat[places].astype(np.float64, copy=False))


def _first_difference(ranks_arrays: list[list[_Description]], ranks: list[int]) -> Difference:
    first = ranks_arrays[0]
    for rank, arrays in zip(ranks, ranks_arrays):
        if len(arrays) != len(first):
            text = f"rank {ranks[0]} has {len(first)} variables, and rank {rank} has {len(arrays)}"
            return Difference(text, True)
    found, is_real = "", False
    for place, wanted in enumerate(first):
        theirs = [arrays[place] for arrays in ranks_arrays]
        different = [i for i, one in enumerate(theirs) if one.checksum != wanted.checksum or one.shape != wanted.shape]
        if not different:
            continue
        other = theirs[different[0]]
        is_real = is_real or _is_real(wanted, other)
        found = found or (
            f"variable {wanted.name!r} ({place + 1} of {len(first)}) differs between the ranks: "
            f"{_how(wanted, other, ranks[0], ranks[different[0]])}; {_who([ranks[i] for i in different], ranks)}"
        )
    return Difference(found, is_real)


def _is_real(one: _Description, other: _Description) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    size = np.maximum(np.abs(one.samples), np.abs(other.samples))
    return bool((np.abs(one.samples - other.samples) > _REAL * size).any())


def _how(one: _Description, other: _Description, rank: int, other_rank: int) -> str:
    if one.shape != other.shape or one.dtype != other.dtype:
        return (
            f"it is {one.dtype} {list(one.shape)} on rank {rank} and {other.dtype} {list(other.shape)} on rank "
            f"{other_rank}"
        )
    unequal = np.flatnonzero(one.samples != other.samples)
    if not unequal.size:
        return f"its checksum is {one.checksum:08x} on rank {rank} and {other.checksum:08x} on rank {other_rank}"
    i = unequal[0]
    return f"one value is {one.samples[i]:.6g} on rank {rank} and {other.samples[i]:.6g} on rank {other_rank}"


def _who(different: list[int], ranks: list[int]) -> str:
    if len(different) == len(ranks) - 1 and len(ranks) > 2:
        return f"all other ranks differ from rank {ranks[0]}"
    shown = ", ".join(map(str, different[:8])) + (f" and {len(different) - 8} more" if len(different) > 8 else "")
    noun, verb = ("rank", "differs") if len(different) == 1 else ("ranks", "differ")
    return f"{noun} {shown} {verb} from rank {ranks[0]}"


def interval() -> int | None:
    """Return the number of steps between checks: 0 for none at all, None for the default, which is one check."""
    text = os.environ.get(VARIABLE, "")
    return int(text) if text else None  # `init` has checked it


_watches: weakref.WeakSet[Watch] = weakref.WeakSet()


def restart() -> None:
    """Have all watches count from 0, because ranks that are new since this `init` do so."""
    for watch in list(_watches):
        watch.restart()


class Watch:
    """
    Checks the arrays of a training loop: every `every` steps, or, if that is None, at the start.

    A check without a number of steps must not end a program that is right. So rank 0 warns in the second step, and all
    raise only if the ranks still differ in the eighth, and by more than rounding: processors of different kinds round
    differently.
    """

    def __init__(self, every: int | None) -> None:
        self._every = every
        self.restart()
        _watches.add(self)

    def restart(self) -> None:
        """Forget all steps."""
        self.step = 0
        self._waits = self._every is None  # for the ranks to become equal

    @property
    def last_look(self) -> int:
        """The last step that is checked at the start; after it, only every n-th one is."""
        return _LOOKS[-1] if self._every is None else _LOOKS[0]

    def is_due(self, step: int) -> bool:
        """Whether this step, from 1 on, is checked."""
        if self._every:
            return step == _LOOKS[0] or (step > _LOOKS[0] and step % self._every == 0)
        return self._waits and step in _LOOKS

    def look(self, step: int, arrays: Sequence[Named], name: str) -> None:
        """Check the arrays if they are due. All ranks must come here in the same steps."""
        if not self.is_due(step):
            return
        if self._every:
            return check_in_sync(arrays, name)
        difference = compare(arrays, name)
        self._waits = difference is not None and difference.is_real
        if not self._waits:
            return
        text = f"{difference.text}. {_ADVICE}. {VARIABLE}=0 switches this check off"
        if step == _LOOKS[-1]:
            raise HorovodSyncError(text)
        if step == _LOOKS[0] and global_process_set.rank() == 0:
            warnings.warn(f"{text}. If the ranks still differ in step {_LOOKS[-1]}, the job ends", stacklevel=2)
