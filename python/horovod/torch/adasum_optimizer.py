# SPDX-License-Identifier: Apache-2.0
"""
Optimizers under Adasum: each rank takes its own steps, and what they have changed is combined.

Adasum is a rule for steps, not for gradients: an optimizer that changes a gradient's length, as Adam does, must come
before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Callable

import torch

from horovod.common import abi
from horovod.torch.compiling import eager
from horovod.torch.grouped import grouped_allreduce


class AdasumOptimizer(torch.optim.Optimizer):
    """What a distributed optimizer has before the methods of the class of the user's optimizer."""

    def _set_out(
        self, given: torch.optim.Optimizer, names: Sequence[str], passes: int, compression: Any, takes_part: bool
    ) -> None:
        self.__dict__.update({name: value for name, value in given.__dict__.items() if name != "step"})
        self.__dict__["_hvd"] = (list(names), compression, takes_part)
        self.set_backward_passes_per_step(passes)

    @eager
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step of this rank's, and combine it with those of the others."""
        names, compression, takes_part = self.__dict__["_hvd"]
        params = [param for group in self.param_groups for param in group["params"] if param.requires_grad]
        before = [param.detach().clone() for param in params] if takes_part else []
        loss = super().step(closure)
        if takes_part:
            changes = [param.detach() - old for param, old in zip(params, before)]
            name = f"{names[0]} and {len(names) - 1} more" if names else None
            changes = grouped_allreduce(changes, name=name, op=abi.ADASUM, compression=compression)
            with torch.no_grad():
                for param, old, change in zip(params, before, changes):
                    param.copy_(old + change)
        return loss

    step.hooked = True  # type: ignore[attr-defined]  # the hooks of PyTorch are those of the method inside

    def synchronize(self) -> None:
        """Do nothing: what is combined are steps, not gradients."""

    def skip_synchronize(self) -> Iterator[None]:
        """Refuse: there is nothing to skip."""
        raise AssertionError("skip_synchronize() has no meaning with op=hvd.Adasum: call step() without it")

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Have no effect: gradients add up until `step` is called, which each rank does after as many passes."""
        self.__dict__["_hvd_passes"] = passes
