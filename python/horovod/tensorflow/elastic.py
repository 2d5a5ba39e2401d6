# SPDX-License-Identifier: Apache-2.0
"""
Elastic training with TensorFlow: states of variables, and the loop that enters a training function again.

A commit holds the values of the variables as tensors and copies nothing: TensorFlow gives a variable new memory when it
changes while somebody holds its value.

>>> import tensorflow as tf
>>> import horovod.tensorflow as hvd
>>> hvd.init()
>>> weights = tf.Variable([1.0, 2.0])
>>> @hvd.elastic.run
... def train(state):
...     while state.step < 3:
...         weights.assign_add([1.0, 1.0])
...         state.step += 1
...         state.commit()
>>> train(hvd.elastic.TensorFlowState([weights], step=0))
>>> weights.numpy()
array([4., 5.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common import schema
from horovod.common.arguments import show
from horovod.common.basics import HorovodBasics
from horovod.common.elastic import ObjectState, run
from horovod.common.elastic_resets import rescale_lr
from horovod.common.elastic_sampler import ElasticSampler
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.tensorflow.elastic_data import shard
from horovod.tensorflow.local_variables import inner_variable, key_of, path_of

# Also if this module is the first one that is imported: names imports the others in an order that works.
from horovod.tensorflow.names import broadcast_object, broadcast_variables


class _Eager:
    """Reads and writes variables of a program that runs eagerly."""

    def __init__(self) -> None:
        self._keys: list[int] = []
        self._read: Any = None

    def read(self, variables: Sequence[tf.Variable]) -> list[tf.Tensor]:
        keys = [key_of(variable) for variable in variables]
        if self._read is None or keys != self._keys:
            held = list(variables)
            self._read = tf.function(lambda: [variable.read_value() for variable in held])
            self._keys = keys
        return self._read()

    def write(self, variables: Sequence[tf.Variable], values: Sequence[Any]) -> None:
        for variable, value in zip(variables, values):
            variable.assign(value)

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        broadcast_variables(variables, root_rank=0)


class _InSession:
    """Reads and writes variables of a graph of tf.compat.v1."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._broadcast: Any = None

    def read(self, variables: Sequence[tf.Variable]) -> list[Any]:
        return self._sessions().run(list(variables))

    def write(self, variables: Sequence[tf.Variable], values: Sequence[Any]) -> None:
        for variable, value in zip(variables, values):
            variable.load(value, self._sessions())

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        if self._broadcast is None:
            with self._sessions().graph.as_default():
                self._broadcast = broadcast_variables(variables, root_rank=0)
        self._sessions().run(self._broadcast)

    def _sessions(self) -> Any:
        if self._session is not None:
            return self._session
        return tf.compat.v1.get_default_session() or tf.compat.v1.keras.backend.get_session()


class VariablesState(ObjectState):
    """A state of variables and objects; subclasses say which variables there are at this moment."""

    def __init__(self, session: Any, **kwargs: Any) -> None:
        in_session = session is not None or not tf.compat.v1.executing_eagerly_outside_functions()
        self._access = _InSession(session) if in_session else _Eager()
        super().__init__(broadcast_object, HorovodBasics().rank, **kwargs)

    def _variables(self) -> list[tf.Variable]:
        """Return the variables that all ranks have in common."""
        raise NotImplementedError

    def _own_variables(self) -> list[tf.Variable]:
        """Return the variables whose values belong to this rank: kept and restored, never sent."""
        return []

    def sync(self) -> None:
        """Give every rank the variables and objects of rank 0, and keep them."""
        variables = self._variables()
        own = [schema.Entry(path_of(one), tuple(one.shape), one.dtype.base_dtype.name) for one in variables]
        objects, wanted = self._bcast_object((self._objects(), own))
        schema.check(own, wanted)
        if variables:
            self._access.broadcast(variables)
        self._set(objects)
        self.save()

    def _capture(self, spare: Any) -> Any:
        variables = [*self._variables(), *self._own_variables()]
        return super()._capture(None), variables, self._access.read(variables) if variables else []

    def _arrays_of(self, kept: Any) -> Any:
        _, variables, values = kept
        return [{path_of(one): value} for one, value in zip(variables[: len(self._variables())], values)]

    def _assign(self, kept: Any) -> None:
        objects, variables, values = kept
        super()._assign(objects)
        self._access.write(variables, values)


class TensorFlowState(VariablesState):
    """
    A state of variables, and of objects as attributes.

    `variables` None means all global variables of a graph of tf.compat.v1, read through `session`.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> weights = tf.Variable([1.0, 2.0])
    >>> state = hvd.elastic.TensorFlowState([weights], batch=0)
    >>> _ = weights.assign([3.0, 4.0])
    >>> state.restore()
    >>> weights.numpy()
    array([1., 2.], dtype=float32)
    """

    def __init__(self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any) -> None:
        if variables is None:
            variables = tf.compat.v1.global_variables()
            if not variables:
                raise ValueError("variables=None: there are no global variables; give a list of variables")
        if hasattr(variables, "assign"):
            raise TypeError(f"{show('variables', variables)} is a single variable: give a list of variables")
        self.variables = list(variables)
        self.session = session
        super().__init__(session, **kwargs)

    def _variables(self) -> list[tf.Variable]:
        return [inner_variable(variable) for variable in self.variables]


class TensorFlowKerasState(VariablesState):
    """
    A state of a Keras model and its optimizer, and of objects as attributes.

    `optimizer` None means the one that the model was compiled with. Its variables are made if they are not there yet.
    States of random numbers and metrics stay those of each rank. `backend` is for programs that give it.

    >>> import tensorflow as tf
    >>> import horovod.tensorflow as hvd
    >>> hvd.init()
    >>> model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])
    >>> state = hvd.elastic.TensorFlowKerasState(model, tf.keras.optimizers.SGD(0.1), batch=0, epoch=0)
    >>> state.commit()
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        if not hasattr(model, "weights") or not hasattr(model, "trainable_variables"):
            raise TypeError(f"{show('model', model)} is no Keras model: for variables use TensorFlowState")
        if not model.weights:
            raise ValueError(
                f"{show('model', model)} has no variables yet: give it an Input, or call it with a batch, before "
                "making a state of it"
            )
        self.model = model
        self.backend = backend
        self._optimizer = optimizer
        super().__init__(None, **kwargs)

    @property
    def optimizer(self) -> Any:
        """The optimizer, or None for a model that was not compiled."""
        return self._optimizer if self._optimizer is not None else getattr(self.model, "optimizer", None)

    def _variables(self) -> list[tf.Variable]:
        return _unique([*self.model.weights, *optimizers_variables(self.optimizer, self.model)])

    def _own_variables(self) -> list[tf.Variable]:
        shared = {key_of(variable) for variable in self._variables()}
        own = [*self.model.variables, *_partial_sums(self.optimizer)]
        return [variable for variable in _unique(own) if key_of(variable) not in shared]

    def _assign(self, kept: Any) -> None:
        counter = getattr(getattr(self.optimizer, "_agg_helper", None), "counter", None)
        if counter is not None:  # made after the commit: nothing was summed up then
            counter.assign(0)
        super()._assign(kept)


def _unique(variables: Sequence[Any]) -> list[tf.Variable]:
    """Return the variables that have a value, once each."""
    found = {key_of(variable): inner_variable(variable) for variable in variables}
    return [variable for variable in found.values() if isinstance(variable, tf.Variable)]


def optimizers_variables(optimizer: Any, model: Any) -> list[Any]:
    """Return an optimizer's variables, its learning rate included, which are made now if they are not there yet."""
    from horovod._keras import families

    if optimizer is None:
        return []
    if not tf.compat.v1.executing_eagerly_outside_functions():
        return families.variables_of(optimizer)
    try:
        families.build(optimizer, model.trainable_variables)
    except TypeError:  # no optimizer of Keras: its variables come with its first step
        return families.variables_of(optimizer)
    innermost = list(families.chain_of(optimizer))[-1]
    rate = getattr(innermost, "_learning_rate", None)
    rate = getattr(innermost, "learning_rate", None) if rate is None else rate
    return [*families.variables_of(optimizer), *([rate] if hasattr(rate, "assign") else [])]


def _partial_sums(optimizer: Any) -> list[Any]:
    helper = getattr(optimizer, "_agg_helper", None)
    return [] if helper is None or helper.counter is None else [helper.counter, *helper._sums]


__all__ = [
    "ElasticSampler",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "TensorFlowKerasState",
    "TensorFlowState",
    "rescale_lr",
    "run",
    "shard",
]
