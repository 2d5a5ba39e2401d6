# SPDX-License-Identifier: Apache-2.0
"""
Times the operations of a job: ``horovodrun -np 4 python -m horovod.benchmark --ops allreduce,alltoall --sizes 4,1M``.

Every result is checked, then each rank writes its data anew before every timed call, as a backward pass does. A call's
time is that of the slowest rank. Rank 0 prints the table.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

import numpy as np

import horovod.numpy as hvd
from horovod.benchmark_tensors import FRAMEWORKS, Tensors
from horovod.common import abi
from horovod.numpy.adapter import bfloat16

OPS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier")
DTYPES = tuple(abi.DTYPES)
COMPRESSIONS = ("none", "fp16", "bf16")
_PAGE = 4096
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "KIB": 1 << 10, "M": 1 << 20, "MIB": 1 << 20, "G": 1 << 30, "GIB": 1 << 30}
# Blocks up to so many bytes get so many timed calls.
_CALLS = ((1 << 10, 1000), (64 << 10, 500), (1 << 20, 100), (16 << 20, 15))


@dataclass
class Row:
    """One operation at one size: microseconds of the slowest rank, and GB/s of the median."""

    op: str
    bytes: int
    calls: int
    min_us: float
    median_us: float
    p90_us: float
    algbw: float
    busbw: float


def parse_size(text: str) -> int:
    """
    Return the bytes that a text such as "64K" means.

    >>> parse_size("64K"), parse_size("1MiB"), parse_size("4")
    (65536, 1048576, 4)
    """
    digits = text.rstrip("BKMGIbkmgi")
    unit = _UNITS.get(text[len(digits) :].upper())
    if unit is None or not digits.isdecimal() or int(digits) == 0:
        raise ValueError(f"'{text}' is no size; write 4, 64K, 1M or 2G")
    return int(digits) * unit


def element_type(name: str) -> np.dtype:
    """
    Return NumPy's type of this name, one of DTYPES; bfloat16 is that of the package ml_dtypes.

    >>> element_type("int16").itemsize
    2
    """
    if name not in DTYPES:
        raise ValueError(f"'{name}' is no element type of hvd; there are {', '.join(DTYPES)}")
    return bfloat16("use `hvd_perf --dtype bfloat16`") if name == "bfloat16" else np.dtype(name)


def default_calls(size: int) -> int:
    """Return how many calls are timed where nobody says it."""
    return next((calls for limit, calls in _CALLS if size <= limit), 5)


def bandwidths(op: str, size: int, ranks: int, microseconds: float) -> tuple[float, float]:
    """
    Return GB/s as the caller sees them, and as the machine does, corrected for the number of ranks.

    >>> bandwidths("allreduce", 1_000_000, 4, 1000.0)
    (1.0, 1.5)
    """
    blocks = op in ("allgather", "alltoall", "reducescatter")
    algbw = size * (ranks if blocks else 1) / microseconds / 1e3
    share = (ranks - 1) / ranks
    return algbw, algbw * (2 * share if op == "allreduce" else share if blocks else 1)


def _require_possible(op: str, dtype: str, compression: str) -> None:
    if op == "reducescatter" and dtype == "bool":
        raise ValueError(
            "dtype: reducescatter of bool is not possible: it only sums, and bool has no sum; give another type"
        )
    if compression == "none":
        return
    if compression not in COMPRESSIONS:
        raise ValueError(f"compression: '{compression}' is no compression; there are {', '.join(COMPRESSIONS)}")
    if op != "allreduce":
        raise ValueError(f"compression: {compression} is for allreduce alone, not for {op}")
    if dtype not in ("float32", "float64"):
        raise ValueError(f"compression: {compression} is for float32 and float64; {dtype} travels as it is")


def _private(count: int, element: np.dtype, offset: int | None) -> np.ndarray:
    """Return an array where malloc puts it, or one that begins `offset` bytes after the begin of a page."""
    if offset is None:
        return np.empty(count, element)
    block = np.empty(count * element.itemsize + 2 * _PAGE, np.uint8)
    begin = -block.ctypes.data % _PAGE + offset
    return block[begin : begin + count * element.itemsize].view(element)


class _Call:
    """An operation on its data, to be repeated."""

    def __init__(
        self,
        op: str,
        size: int,
        dtype: str,
        arena: bool,
        compression: str = "none",
        offset: int | None = None,
        new_arrays: bool = False,
        framework: str = "numpy",
    ) -> None:
        _require_possible(op, dtype, compression)
        ranks = hvd.size()
        element = element_type(dtype)
        count = size // element.itemsize
        self._name = f"horovod.benchmark.{op}.{dtype}.{compression}.{size}"
        self._op = op
        self._tensors = Tensors(framework)
        self._compression = None if compression == "none" else compression
        self._reduce = hvd.Max if dtype == "bool" else hvd.Sum  # bool has no sum
        # By rank: sums of some ones and twos are exact in the shortest type; what is moved shows from whom it is.
        numbers = np.arange(ranks)
        summed = np.where(numbers < 64, numbers % 2 + 1, 0)
        self._values = (summed if op in ("allreduce", "reducescatter") else numbers + 1).astype(element)
        self._new_arrays = new_arrays or not self._tensors.in_place
        count *= ranks if op in ("alltoall", "reducescatter") else 1
        self._input = hvd.empty(count, element) if arena else _private(count, element, offset)
        self.refresh()

    def refresh(self) -> None:
        self._input.fill(self._values[hvd.rank()])
        self._tensor = self._tensors.tensor(self._input)

    def __call__(self) -> Any:
        return self._tensors.finished(self._call(self._tensors.operations, self._tensor))

    def _call(self, api: ModuleType, tensor: Any) -> Any:
        name, op = self._name, self._op
        if self._compression:
            compression = getattr(api.Compression, self._compression)
            return api.allreduce(tensor, op=self._reduce, name=name, compression=compression)
        if op == "allreduce":
            return (api.allreduce if self._new_arrays else api.allreduce_)(tensor, op=self._reduce, name=name)
        if op == "broadcast":
            return (api.broadcast if self._new_arrays else api.broadcast_)(tensor, 0, name=name)
        if op == "reducescatter":
            return api.reducescatter(tensor, op=self._reduce, name=name)
        if op == "barrier":
            return hvd.barrier()
        return getattr(api, op)(tensor, name=name)

    def check(self) -> None:
        self.refresh()
        result = self()
        if result is None:
            return
        result = self._tensors.array(result)
        if self._op in ("allreduce", "reducescatter"):
            expected = self._values.sum(dtype=result.dtype)
        elif self._op == "broadcast":
            expected = self._values[0]
        else:
            expected = np.repeat(self._values, len(result) // len(self._values))
        if not np.array_equal(result, np.broadcast_to(expected, result.shape)):
            raise RuntimeError(f"wrong result of {self._name} on rank {hvd.rank()}")


def measure(
    op: str,
    size: int,
    dtype: str = "float32",
    calls: int | None = None,
    arena: bool = False,
    compression: str = "none",
    offset: int | None = None,
    new_arrays: bool = False,
    framework: str = "numpy",
) -> Row:
    """
    Check and time one operation; all ranks call it, and all get the same.

    `size` is that of a block: each rank's input; for alltoall what one rank sends to one, for reducescatter each rank's
    output. `dtype` is one of DTYPES; reductions are sums, of bool, which has none, the maximum. `compression` is one of
    COMPRESSIONS, for an allreduce of float32 or float64; such a call makes a new array for its result, and its bytes
    are those of `dtype`. Private arrays lie where malloc puts them, or begin `offset` bytes after the begin of a page.
    With `new_arrays` an allreduce or broadcast returns a new array each time, as `hvd.allreduce` does; else it works in
    place. `framework` says whose tensors are given, one of FRAMEWORKS; those of JAX are always new.

    >>> hvd.init()
    >>> measure("allreduce", 1024, calls=3).calls
    3
    """
    call = _Call(op, size, dtype, arena, compression, offset, new_arrays, framework)
    calls = calls or default_calls(size)
    for _ in range(3):  # the first time a name is agreed upon, then it is known
        call.check()
    times = np.empty(calls)
    for i in range(calls):
        call.refresh()
        hvd.barrier()
        start = time.perf_counter_ns()
        call()
        times[i] = (time.perf_counter_ns() - start) / 1000
    slowest = sorted(hvd.allreduce(times, op=hvd.Max, name="horovod.benchmark.times").tolist())
    median = statistics.median(slowest)
    return Row(op, size, calls, slowest[0], median, slowest[calls * 9 // 10], *bandwidths(op, size, hvd.size(), median))


def heading(dtype: str, arena: bool, compression: str, offset: int | None = None, new_arrays: bool = False) -> str:
    """Return the table's first lines."""
    memory = "arena" if arena else "private"
    memory += " memory" if offset is None else f" memory {offset} bytes after a page"
    memory += ", new arrays" if new_arrays else ""
    what = dtype if compression == "none" else f"{dtype} as {compression} on the way, into a new array"
    title = f"# hvd {hvd.__version__}, {hvd.size()} ranks, {what}, {memory}, fresh data, checked"
    times = "".join(f"{name:>12}" for name in ("min us", "median us", "p90 us"))
    return f"{title}\n{'op':14}{'bytes':>12}{'calls':>8}{times}{'algbw':>9}{'busbw':>9}"


def as_line(row: Row) -> str:
    """Return a row as text."""
    times = f"{row.min_us:12.2f}{row.median_us:12.2f}{row.p90_us:12.2f}"
    return f"{row.op:14}{row.bytes:12}{row.calls:8}{times}{row.algbw:9.3f}{row.busbw:9.3f}"


def _listed(what: Callable[[str], object]) -> Callable[[str], list]:
    def parse(text: str) -> list:
        try:
            return [what(part) for part in text.split(",")]
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def _operation(text: str) -> str:
    if text not in OPS:
        raise ValueError(f"'{text}' is no operation; there are {', '.join(OPS)}")
    return text


def _dtype(text: str) -> str:
    try:
        element_type(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of at least 1")
    return int(text)


def _offset(text: str) -> int | None:
    if text == "malloc":
        return None
    if not text.isdecimal() or int(text) >= _PAGE:
        raise argparse.ArgumentTypeError(f"'{text}' is no offset; give malloc, or a number below {_PAGE}")
    return int(text)


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m horovod.benchmark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ops", "--op", type=_listed(_operation), default=["allreduce"], help=f"of {', '.join(OPS)}")
    sizes = [4, 1 << 10, 64 << 10, 1 << 20, 16 << 20]
    parser.add_argument(
        "--sizes", type=_listed(parse_size), default=sizes, help="bytes of a block; default 4,1K,64K,1M,16M"
    )
    parser.add_argument("--dtype", type=_dtype, default="float32", help=f"of {', '.join(DTYPES)}; default float32")
    parser.add_argument(
        "--compression",
        choices=COMPRESSIONS,
        default="none",
        help="as what an allreduce of float32 or float64 travels; default none",
    )
    parser.add_argument("--framework", choices=FRAMEWORKS, default="numpy", help="whose tensors; default numpy")
    parser.add_argument("--calls", type=_positive, help="timed calls of each; default by size")
    parser.add_argument("--arena", action="store_true", help="memory of hvd.empty, which needs no copy")
    parser.add_argument(
        "--offset", type=_offset, metavar="malloc|N", help="where private arrays begin after a page; default malloc"
    )
    parser.add_argument(
        "--new-arrays", action="store_true", help="results of allreduce and broadcast are new arrays; default in place"
    )
    parser.add_argument("--json", metavar="FILE", help="write the rows to this file, or with - print them instead")
    found = parser.parse_args(words)
    try:
        for op in found.ops:
            _require_possible(op, found.dtype, found.compression)
    except ValueError as error:
        parser.error(f"--{error}")
    least = element_type(found.dtype).itemsize
    if any(size % least for size in found.sizes):
        parser.error(f"--sizes: {found.dtype} has {least} bytes, and a size must hold whole elements")
    return found


def _measure_all(wanted: argparse.Namespace) -> list[Row]:
    shown = hvd.rank() == 0 and wanted.json != "-"
    if shown:
        whose = "" if wanted.framework == "numpy" else f" in tensors of {wanted.framework}"
        what = wanted.dtype + whose
        print(heading(what, wanted.arena, wanted.compression, wanted.offset, wanted.new_arrays), flush=True)
    rows = []
    for op in wanted.ops:
        for size in wanted.sizes if op != "barrier" else [0]:
            row = measure(
                op,
                size,
                wanted.dtype,
                wanted.calls,
                wanted.arena,
                wanted.compression,
                wanted.offset,
                wanted.new_arrays,
                wanted.framework,
            )
            rows.append(row)
            if shown:
                print(as_line(row), flush=True)
    return rows


def _write_json(where: str, wanted: argparse.Namespace, rows: list[Row]) -> None:
    result = {
        "version": hvd.__version__,
        "ranks": hvd.size(),
        "framework": wanted.framework,
        "dtype": wanted.dtype,
        "compression": wanted.compression,
        "arena": wanted.arena,
        "offset": wanted.offset,
        "new_arrays": wanted.new_arrays,
        "rows": [asdict(row) for row in rows],
    }
    text = json.dumps(result, indent=1)
    if where == "-":
        print(text, flush=True)
    else:
        pathlib.Path(where).write_text(text + "\n")


def main(words: list[str] | None = None) -> int:
    """Measure what the command line asks for."""
    wanted = _arguments(words)
    hvd.init()
    writes = hvd.rank() == 0 and wanted.json
    where = f"--json {wanted.json}" if wanted.json else "the output"
    try:
        if writes and wanted.json != "-":
            pathlib.Path(wanted.json).touch()  # before anything is measured
        rows = _measure_all(wanted)
        if writes:
            _write_json(wanted.json, wanted, rows)
    except OSError as reason:
        sys.stdout = None  # what it still holds cannot be written, either
        sys.exit(f"{where} cannot be written: {reason.strerror}")
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
