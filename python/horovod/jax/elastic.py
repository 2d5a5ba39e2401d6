# SPDX-License-Identifier: Apache-2.0
"""
Elastic training with JAX: a state of trees of arrays, and the loop that enters a training function again.

>>> import jax
>>> import jax.numpy as jnp
>>> import horovod.jax as hvd
>>> hvd.init()
>>> @jax.jit
... def step(params):
...     return params + hvd.allreduce(jnp.ones(2), name="gradients")
>>> @hvd.elastic.run
... def train(state):
...     while state.step < 3:
...         state.params = step(state.params)
...         state.step += 1
...         state.commit()
>>> state = hvd.elastic.JaxState(params=jnp.zeros(2), step=0)
>>> train(state)
>>> state.params
Array([3., 3.], dtype=float32)
"""

from __future__ import annotations

import copy
from typing import Any

import jax
import numpy as np

from horovod.common import schema
from horovod.common.basics import HorovodBasics
from horovod.common.elastic import ObjectState, run
from horovod.common.elastic_resets import rescale_lr
from horovod.common.elastic_sampler import ElasticSampler
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.common.objects import broadcast_object
from horovod.jax.functions import broadcast_parameters


class JaxState(ObjectState):
    """
    Trees of arrays and other objects, which are attributes: parameters, the state of an optimizer, keys, counters.

    A commit copies the arrays, because a compiled function may be given them by `donate_argnums` and overwrites them
    then. With `donated=False`, a commit holds the arrays themselves and copies nothing.

    >>> import jax.numpy as jnp
    >>> import horovod.jax as hvd
    >>> hvd.init()
    >>> state = hvd.elastic.JaxState(params={"w": jnp.zeros(2)}, step=0)
    >>> state.params = {"w": jnp.ones(2)}
    >>> state.restore()
    >>> state.params
    {'w': Array([0., 0.], dtype=float32)}
    """

    def __init__(self, *, donated: bool = True, **kwargs: Any) -> None:
        self._donated = donated
        super().__init__(broadcast_object, HorovodBasics().rank, **kwargs)

    def sync(self) -> None:
        """Give every rank the arrays and objects of rank 0, and keep them."""
        trees = {name: value for name, value in self._objects().items() if any(map(_is_array, _leaves(value)))}
        arrays = {
            name + jax.tree_util.keystr(path): leaf
            for name, tree in trees.items()
            for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
            if _is_array(leaf)
        }
        own = [schema.Entry(path, tuple(leaf.shape), str(leaf.dtype)) for path, leaf in arrays.items()]
        others = {name: value for name, value in self._objects().items() if name not in trees}
        plain_leaves = {name: [leaf for leaf in _leaves(tree) if not _is_array(leaf)] for name, tree in trees.items()}
        others, plain_leaves, wanted = self._bcast_object((others, plain_leaves, own))
        schema.check(own, wanted)
        received = iter(broadcast_parameters(list(arrays.values()), root_rank=0, name="elastic.state"))
        for name, tree in trees.items():
            plain = iter(plain_leaves[name])
            take = [next(received if _is_array(leaf) else plain) for leaf in _leaves(tree)]
            others[name] = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(tree), take)
        self._set(others)
        self.save()

    def _capture(self, spare: Any) -> Any:
        kept = {}
        for name, value in self._objects().items():
            if any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in _leaves(value)):
                raise ValueError(
                    f"state.{name} holds an array that a compiled function was given by donate_argnums: assign what "
                    f"the function returned to state.{name} before the commit"
                )
            kept[name] = jax.tree_util.tree_map(self._copied, value)
        return kept

    def _arrays_of(self, kept: Any) -> Any:
        trees = {name: jax.tree_util.tree_flatten_with_path(value)[0] for name, value in kept.items()}
        return {
            name: {jax.tree_util.keystr(path): _without_key(leaf) for path, leaf in leaves if _is_array(leaf)}
            for name, leaves in trees.items()
        }

    def _assign(self, kept: Any) -> None:
        self._set({name: jax.tree_util.tree_map(self._copied, value) for name, value in kept.items()})

    def _copied(self, leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            return leaf.copy() if self._donated else leaf
        return copy.deepcopy(leaf)


def _leaves(tree: Any) -> list[Any]:
    return jax.tree_util.tree_leaves(tree)


def _without_key(leaf: Any) -> Any:
    is_key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray))


__all__ = ["ElasticSampler", "HorovodInternalError", "HostsUpdatedInterrupt", "JaxState", "rescale_lr", "run"]
