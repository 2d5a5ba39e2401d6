# SPDX-License-Identifier: Apache-2.0
"""Allreduce of sparse tensors: all ranks' indices and values are gathered."""

from __future__ import annotations

from typing import Any, Callable

import torch

from horovod.common import reductions, request
from horovod.common.arguments import show
from horovod.common.exceptions import HorovodUnsupportedError
from horovod.common.process_sets import ProcessSet, global_process_set, id_of, ranks_of
from horovod.torch.compiling import eager
from horovod.torch.exchange import allgather_async


@eager
def sparse_allreduce_async(
    tensor: torch.Tensor, name: str | None, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """
    Start the reduction of sparse COO tensors, `Average` or `Sum`; call what is returned to wait for the result.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> rows = torch.sparse_coo_tensor([[1]], [2.0], (3,))
    >>> hvd.sparse_allreduce_async(rows, name="rows", op=hvd.Average)().to_dense()
    tensor([0., 2., 0.])
    """
    reduce_op = reductions.choose(op, None)
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        raise ValueError(f"{show('tensor', tensor)} is no sparse COO tensor: use hvd.allreduce_async")
    if reduce_op not in (reductions.Average, reductions.Sum):
        raise HorovodUnsupportedError("a sparse tensor is reduced by hvd.Average or hvd.Sum: give tensor.to_dense()")
    size = len(ranks_of(id_of(process_set)))
    own = tensor.detach().coalesce()
    values = own.values()
    if reduce_op == reductions.Average:
        # Before they travel, so that each rank divides its own rows only.
        values = values / size
    # Rows of indices belong to rows of values.
    indices = own.indices().t().contiguous()
    shape = tensor.shape
    first = allgather_async(indices, name=f"{name}.indices" if name else None, process_set=process_set)
    try:
        second = allgather_async(values, name=f"{name}.values" if name else None, process_set=process_set)
    except BaseException:
        request.leave(first)
        raise

    def wait() -> torch.Tensor:
        all_indices: Any = request.synchronize(first)
        all_values: Any = request.synchronize(second)
        return torch.sparse_coo_tensor(all_indices.t(), all_values, shape, check_invariants=False).coalesce()

    return wait
