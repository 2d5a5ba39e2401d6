# SPDX-License-Identifier: Apache-2.0
"""The tensors of frameworks that `horovod.benchmark` times operations on."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np

FRAMEWORKS = ("numpy", "torch", "jax")


class Tensors:
    """
    The operations of a framework, and its tensors for arrays.

    A tensor of PyTorch has the array's memory. One of JAX is a copy, because its arrays do not change.
    """

    def __init__(self, framework: str) -> None:
        self.operations: ModuleType = importlib.import_module(f"horovod.{framework}")
        self.in_place = framework != "jax"
        self._framework = framework

    def tensor(self, array: np.ndarray) -> Any:
        """Return the framework's tensor of this array."""
        if self._framework == "torch":
            import torch

            if array.dtype.name == "bfloat16":
                return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
            return torch.from_numpy(array)
        if self._framework == "jax":
            import jax.numpy as jnp

            tensor = jnp.array(array)
            if tensor.dtype != array.dtype:
                raise ValueError(f"dtype: JAX has no {array.dtype} unless JAX_ENABLE_X64=1 is set")
            return tensor
        return array

    def array(self, tensor: Any) -> np.ndarray:
        """Return the values of a tensor."""
        if self._framework == "torch" and str(tensor.dtype) == "torch.bfloat16":
            return tensor.float().numpy()  # NumPy has no such type
        return np.asarray(tensor)

    def finished(self, result: Any) -> Any:
        """Return the result when it is there: JAX may return before."""
        return result.block_until_ready() if self._framework == "jax" and result is not None else result
