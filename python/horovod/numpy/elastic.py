# SPDX-License-Identifier: Apache-2.0
"""
Elastic training of programs that hold their model in NumPy arrays.

>>> import numpy as np
>>> import horovod.numpy as hvd
>>> hvd.init()
>>> weights = np.zeros(3)
>>> state = hvd.elastic.NumpyState({"weights": weights}, step=0)
>>> @hvd.elastic.run
... def train(state):
...     while state.step < 2:
...         weights[:] += 1.0
...         state.step += 1
...         state.commit()
>>> train(state)
>>> weights
array([2., 2., 2.])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from horovod.common import schema
from horovod.common.arguments import show
from horovod.common.basics import HorovodBasics
from horovod.common.elastic import ObjectState, run
from horovod.common.elastic_resets import rescale_lr
from horovod.common.elastic_sampler import ElasticSampler
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.common.objects import broadcast_object
from horovod.numpy.ops import broadcast_parameters


class NumpyState(ObjectState):
    """
    Named arrays, which are overwritten in place, and Python objects, which are attributes.

    >>> import numpy as np
    >>> import horovod.numpy as hvd
    >>> from horovod.numpy.elastic import NumpyState
    >>> hvd.init()
    >>> weights = np.zeros(2)
    >>> state = NumpyState({"weights": weights}, epoch=0)
    >>> state.commit()
    >>> weights += 1
    >>> state.restore()
    >>> weights
    array([0., 0.])
    """

    def __init__(self, arrays: Mapping[str, np.ndarray] | None = None, **kwargs: Any) -> None:
        self.arrays = dict(arrays or {})
        for name, array in self.arrays.items():
            if not isinstance(array, np.ndarray):
                raise TypeError(f"{show(f'arrays[{name!r}]', array)} is no NumPy array: give objects as keywords")
        super().__init__(broadcast_object, HorovodBasics().rank, **kwargs)

    def sync(self) -> None:
        """Give every rank the arrays and objects of rank 0, and keep them."""
        own = [schema.Entry(name, array.shape, array.dtype.name) for name, array in self.arrays.items()]
        objects, wanted = self._bcast_object((self._objects(), own))
        schema.check(own, wanted)
        broadcast_parameters(self.arrays, root_rank=0)
        self._set(objects)
        self.save()

    def _capture(self, spare: Any) -> Any:
        kept = spare[1] if spare is not None else {name: np.empty_like(one) for name, one in self.arrays.items()}
        for name, array in self.arrays.items():
            np.copyto(kept[name], array)
        return super()._capture(None), kept

    def _arrays_of(self, kept: Any) -> Any:
        return kept[1]

    def _assign(self, kept: Any) -> None:
        objects, arrays = kept
        super()._assign(objects)
        for name, array in arrays.items():
            np.copyto(self.arrays[name], array)


__all__ = [
    "ElasticSampler",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "NumpyState",
    "ObjectState",
    "rescale_lr",
    "run",
]
