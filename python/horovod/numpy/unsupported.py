# SPDX-License-Identifier: Apache-2.0
"""Operations of the API that this release does not have yet. They are here so that programs get a clear answer."""

from __future__ import annotations

from typing import Any, Callable

from horovod.common.exceptions import HorovodUnsupportedError


def _unsupported(name: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise HorovodUnsupportedError(f"horovod.numpy.{name} does not exist in this release yet")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Not in this release yet: raises NotImplementedError."
    return function


alltoall = _unsupported("alltoall")
alltoall_async = _unsupported("alltoall_async")
reducescatter = _unsupported("reducescatter")
reducescatter_async = _unsupported("reducescatter_async")
grouped_allreduce = _unsupported("grouped_allreduce")
grouped_allreduce_async = _unsupported("grouped_allreduce_async")
grouped_allreduce_ = _unsupported("grouped_allreduce_")
grouped_allreduce_async_ = _unsupported("grouped_allreduce_async_")
grouped_allgather = _unsupported("grouped_allgather")
grouped_allgather_async = _unsupported("grouped_allgather_async")
grouped_reducescatter = _unsupported("grouped_reducescatter")
grouped_reducescatter_async = _unsupported("grouped_reducescatter_async")
join = _unsupported("join")
