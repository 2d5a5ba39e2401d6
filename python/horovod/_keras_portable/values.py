# SPDX-License-Identifier: Apache-2.0
"""Collective operations on values, the variables of models among them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import horovod.numpy as hnp
from horovod._keras.families import variables_of
from horovod._keras_portable.exchange import binding
from horovod.common import in_sync, reductions
from horovod.common.process_sets import ProcessSet

_ADVICE = "Every rank must begin with the same values: give fit the callback BroadcastGlobalVariablesCallback(0)"


def _tensor(value: Any) -> Any:
    if isinstance(value, keras.Variable):
        value = value.value
    tensor = keras.ops.convert_to_tensor(value)
    return tensor.detach() if hasattr(tensor, "detach") else tensor


def allreduce(
    value: Any,
    name: str | None,
    average: bool | None,
    prescale_factor: float,
    postscale_factor: float,
    op: int | None,
    compression: Any,
) -> Any:
    """Reduce a value. For the public functions to call: whoever called them reads the warnings."""
    return binding.allreduce(
        _tensor(value),
        op=reductions.choose(op, average),
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        compression=compression,
        name=name,
    )


def allgather(value: Any, name: str | None) -> Any:
    """Concatenate the ranks' values."""
    return binding.allgather(_tensor(value), name=name)


def broadcast(value: Any, root_rank: int, name: str | None) -> Any:
    """Return the root's value."""
    return binding.broadcast(_tensor(value), root_rank, name=name)


def reducescatter(value: Any, name: str | None, op: int) -> Any:
    """Reduce a value and return this rank's rows."""
    return binding.reducescatter(_tensor(value), name=name, op=op)


def _array(variable: Any) -> np.ndarray:
    return np.ascontiguousarray(keras.ops.convert_to_numpy(variable.value))


def broadcast_variables(variables: list[Any], root_rank: int) -> None:
    """Overwrite variables with the root's, all in flight at once."""
    handles = [
        hnp.broadcast_async(_array(one).reshape(one.shape), root_rank, name=f"keras.{number}.{one.path}")
        for number, one in enumerate(variables)
    ]
    for variable, handle in zip(variables, handles):
        variable.assign(hnp.synchronize(handle))


def check_in_sync(model_or_variables: Any, process_set: ProcessSet) -> None:
    """Compare variables among the ranks by checksums."""
    if isinstance(model_or_variables, (list, tuple)):
        variables = list(model_or_variables)
    else:
        model = model_or_variables
        variables = [*model.weights, *variables_of(getattr(model, "optimizer", None))]
    arrays = [(one.path, lambda one=one: _array(one)) for one in variables]
    in_sync.check_in_sync(arrays, "check_in_sync", process_set, _ADVICE)
