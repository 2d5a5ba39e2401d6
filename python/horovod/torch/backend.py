# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D102  (methods that torch.distributed documents)
"""
The backend "hvd" of torch.distributed: each process group is an engine of its own.

PyTorch from 2.5 on knows it where this package is installed, older ones after `import horovod.torch`; then
`torch.distributed.init_process_group("hvd")` under torchrun needs nothing else, and no `hvd.init()`. The ranks of a
group exchange the address of their engine through the group's store. In this release they are on one host.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work as _Work  # the public name is younger than 2.1

from horovod._torch_backend import NAME
from horovod.common import abi
from horovod.common.exceptions import HorovodInternalError, HorovodUnsupportedError
from horovod.common.operation import Operation
from horovod.torch.adapter import as_input, dtype_code, place, wrap
from horovod.torch.compiling import eager
from horovod.torch.futures import Call
from horovod.torch.group_engine import Engine, Flight

_TURNS = 16  # names of calls of one kind; when all are in flight, the next call starts when the first is over
_REDUCTIONS = {
    "SUM": abi.SUM,
    "AVG": abi.AVERAGE,
    "MIN": abi.MIN,
    "MAX": abi.MAX,
    "PRODUCT": abi.PRODUCT,
}


class Work(_Work):
    """A call of a process group. Unlike a work that PyTorch makes of a future, it raises the error when waited for."""

    def __init__(self, future: torch.futures.Future, call: Call | None = None) -> None:
        super().__init__()
        self._future, self._call = future, call

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        if self._call is not None:
            self._call.complete()
        self._future.wait()
        return True

    def is_completed(self) -> bool:
        return self._future.done()

    def get_future(self) -> torch.futures.Future:
        return self._future

    def result(self) -> Any:
        self.wait()
        return self._future.value()


class ProcessGroupHvd(dist.ProcessGroup):
    """A process group of torch.distributed over an engine."""

    def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._engine = Engine(store, rank, size, timeout.total_seconds())
        self._calls: Counter = Counter()
        self._name, self._desc = "", "undefined"

    # What PyTorch asks a group.
    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    getRank, getSize = rank, size

    # From 2.14 on, PyTorch asks the backend of a device what it can do.
    supports_coalescing = supports_splitting = False

    def _get_backend(self, device: Any) -> ProcessGroupHvd:
        return self

    def getBackendName(self) -> str:
        return NAME

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupDesc(self, desc: str) -> None:
        self._desc = desc

    def getGroupDesc(self) -> str:
        return self._desc

    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    def shutdown(self) -> None:
        self._engine.close()

    abort = shutdown

    # Collectives.
    def _do(self, opts: Any, operations: Sequence[Operation], keep: Any, finish: Callable[[list], Any]) -> Any:
        """Start operations; `finish` makes the result of their outputs. Returns the work."""
        engine = self._engine
        if engine.waiter.closing:
            raise HorovodInternalError("the process group was destroyed")
        if getattr(opts, "asyncOp", True) is False:
            try:
                value = finish([engine.run(one) for one in operations])
            except KeyboardInterrupt:
                engine.waiter.left.append(keep)  # the operation goes on
                raise
            done: torch.futures.Future = torch.futures.Future()
            done.set_result(value)
            return Work(done)
        flights: list[Flight] = []

        def wait() -> Any:
            for one in flights:  # all, because those in flight use the memory
                one.end()
            return finish([one.result() for one in flights])

        try:
            flights += map(engine.start, operations)
        except BaseException:
            engine.waiter.call(wait, keep)  # those that have started keep their memory
            raise
        call = engine.waiter.call(wait, keep)
        return Work(call.future, call)

    def _operation(
        self,
        kind: int,
        tensor: torch.Tensor,
        same: bool = True,
        target: torch.Tensor | None = None,
        reduce_op: int = abi.SUM,
        root: int = 0,
        splits: tuple[int, ...] | None = None,
        process_set: int = 0,
        tag: str = "",
    ) -> Operation:
        """Describe it. The n-th call of a kind has the same name on all ranks; names come again, so they are known."""
        shape, dtype = tuple(tensor.shape), dtype_code(tensor.dtype)
        kept = shape if same else len(shape)
        signature = (kind, kept, dtype, reduce_op, root, process_set, tag)
        number = self._calls[signature] % _TURNS
        self._calls[signature] += 1
        name = f"{kind}.{kept}.{dtype}.{reduce_op}.{root}.{tag}.{number}".encode()
        into = None if target is None else place(target)
        return Operation(
            kind, process_set, dtype, shape, place(tensor), into, reduce_op, root, splits=splits, name=name
        )

    def _in_place(self, kind: int, tensors: Sequence[torch.Tensor], opts: Any, **more: Any) -> Any:
        sent = [as_input(one) for one in tensors]  # copies of those that are not contiguous
        operations = [self._operation(kind, one, target=one, **more) for one in sent]

        def finish(_: list) -> list[torch.Tensor]:
            for one, own in zip(sent, tensors):
                if one.data_ptr() != own.data_ptr():
                    own.detach().copy_(one)
            return list(tensors)

        return self._do(opts, operations, (sent, tensors), finish)

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        return self._in_place(abi.ALLREDUCE, tensors, opts, reduce_op=_reduction(opts))

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        return self._in_place(abi.BROADCAST, tensors, opts, root=opts.rootRank if opts is not None else 0)

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        if self._rank == opts.rootRank:
            return self.allreduce(tensors, opts)
        copies = [one.detach().clone() for one in tensors]
        return self._in_place(abi.ALLREDUCE, copies, opts, reduce_op=_reduction(opts))

    def barrier(self, opts: Any = None) -> Any:
        return self._in_place(abi.ALLREDUCE, [torch.zeros(1, dtype=torch.uint8)], opts, tag="barrier")

    def _gather(self, parts: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any) -> Any:
        """Gather each input into its list of one tensor per rank; an empty list is left."""
        sent = [as_input(one).reshape(1, -1) for one in inputs]
        operations = [self._operation(abi.ALLGATHER, one) for one in sent]

        def finish(results: list) -> list[torch.Tensor]:
            for result, source, outputs in zip(results, sent, parts):
                for row, output in zip(wrap(result, source.dtype), outputs):
                    output.detach().copy_(row.view(output.shape))
            return [one for outputs in parts for one in outputs]

        return self._do(opts, operations, (sent, parts), finish)

    def allgather(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        return self._gather(outputs, inputs, opts)

    def gather(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        own = outputs if self._rank == opts.rootRank else [[] for _ in inputs]
        return self._gather(own, inputs, opts)

    def _rows_of(self, whole: torch.Tensor) -> list[torch.Tensor]:
        return list(whole.detach().view(self._size, -1))

    def allgather_into_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        return self._gather([self._rows_of(one) for one in outputs], inputs, opts)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        return self.allgather_into_tensor_coalesced([output], [tensor], opts)

    all_gather_single = allgather_into_tensor = _allgather_base

    def _scatter_sum(self, outputs: Sequence[torch.Tensor], wholes: Sequence[torch.Tensor], opts: Any) -> Any:
        """Reduce wholes, a row per rank, and give each rank its row."""
        reduce_op = _reduction(opts)
        if reduce_op not in (abi.SUM, abi.AVERAGE):
            raise HorovodUnsupportedError("backend hvd: reduce_scatter has SUM and AVG: use all_reduce for others")
        operations = [self._operation(abi.REDUCESCATTER, one, reduce_op=reduce_op) for one in wholes]

        def finish(results: list) -> list[torch.Tensor]:
            for result, source, output in zip(results, wholes, outputs):
                output.detach().copy_(wrap(result, source.dtype).view(output.shape))
            return list(outputs)

        return self._do(opts, operations, (wholes, outputs), finish)

    def reduce_scatter(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any = None
    ) -> Any:
        wholes = [torch.stack([one.detach().reshape(-1) for one in parts]) for parts in inputs]
        return self._scatter_sum(outputs, wholes, opts)

    def reduce_scatter_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        return self._scatter_sum(outputs, [as_input(one).view(self._size, -1) for one in inputs], opts)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _reduce_scatter_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        return self.reduce_scatter_tensor_coalesced([output], [tensor], opts)

    reduce_scatter_single = reduce_scatter_tensor = _reduce_scatter_base

    def alltoall_base(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Any:
        source = as_input(tensor)
        splits = tuple(input_splits) or (source.shape[0] // self._size,) * self._size
        operation = self._operation(abi.ALLTOALL, source, same=False, splits=splits)

        def finish(results: list) -> list[torch.Tensor]:
            output.detach().copy_(wrap(results[0], source.dtype).view(output.shape))
            return [output]

        return self._do(opts, [operation], (source, output), finish)

    all_to_all_single = alltoall_base

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> Any:
        source = torch.cat([one.detach().reshape(-1) for one in inputs])
        splits = tuple(one.numel() for one in inputs)
        operation = self._operation(abi.ALLTOALL, source, same=False, splits=splits)

        def finish(results: list) -> list[torch.Tensor]:
            rows = wrap(results[0], source.dtype).split([one.numel() for one in outputs])
            for output, row in zip(outputs, rows):
                output.detach().copy_(row.view(output.shape))
            return list(outputs)

        return self._do(opts, [operation], (source, outputs), finish)

    def scatter(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any = None
    ) -> Any:
        shape = (self._size, outputs[0].numel())
        if self._rank == opts.rootRank:
            whole = torch.stack([one.detach().reshape(-1) for one in inputs[0]])
        else:
            whole = outputs[0].new_empty(shape).detach()
        operation = self._operation(abi.BROADCAST, whole, target=whole, root=opts.rootRank, tag="scatter")

        def finish(_: list) -> list[torch.Tensor]:
            outputs[0].detach().copy_(whole[self._rank].view(outputs[0].shape))
            return list(outputs)

        return self._do(opts, [operation], (whole, outputs), finish)

    def send(self, tensors: Sequence[torch.Tensor], dst: int, tag: int = 0) -> Any:
        pair = self._engine.pair(self._rank, dst)
        more = {"root": self._rank, "process_set": pair, "tag": f"p{self._rank}.{tag}"}
        return self._in_place(abi.BROADCAST, [one.detach().clone() for one in tensors], None, **more)

    def recv(self, tensors: Sequence[torch.Tensor], src: int, tag: int = 0) -> Any:
        pair = self._engine.pair(self._rank, src)
        more = {"root": src, "process_set": pair, "tag": f"p{src}.{tag}"}
        return self._in_place(abi.BROADCAST, tensors, None, **more)


def _reduction(opts: Any) -> int:
    if opts is None:
        return abi.SUM
    for name, op in _REDUCTIONS.items():
        if opts.reduceOp == getattr(dist.ReduceOp, name):
            return op
    raise HorovodUnsupportedError(
        f"backend hvd: there is no reduction {opts.reduceOp}: give one of {', '.join(_REDUCTIONS)}"
    )


# A compiler that looks into these would see the engine.
for _method in [name for name, value in vars(ProcessGroupHvd).items() if callable(value) and not name.startswith("__")]:
    setattr(ProcessGroupHvd, _method, eager(getattr(ProcessGroupHvd, _method)))


def create(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> ProcessGroupHvd:
    """Make a process group. For torch.distributed."""
    return ProcessGroupHvd(store, rank, size, timeout)
