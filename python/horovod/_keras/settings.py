# SPDX-License-Identifier: Apache-2.0
"""What a user said about the exchange of one optimizer's gradients."""

from __future__ import annotations

import dataclasses
from typing import Any

from horovod.common import reductions
from horovod.common.arguments import show
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.aggregation import checked_passes
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.local_variables import key_of
from horovod.tensorflow.reduction import checked_groups, checked_predivide

# In place of layers that a class must not hold.
NOT_KEPT = "local_layers that are not kept"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The options of `DistributedOptimizer` and its sibling."""

    name: str | None = None
    device_dense: str = ""
    device_sparse: str = ""
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    op: int = reductions.Average
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    groups: Any = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True
    local_layers: Any = None

    def __post_init__(self) -> None:
        """Raise ValueError or TypeError before anything is sent."""
        op = reductions.choose(self.op, None)
        if op not in (reductions.Average, reductions.Sum):
            raise ValueError(f"{show('op', self.op)}: a Keras optimizer reduces with hvd.Average or hvd.Sum only")
        checked_predivide(op, self.gradient_predivide_factor)
        checked_passes(self.backward_passes_per_step)
        checked_groups(0, self.groups)

    def __deepcopy__(self, memo: Any) -> Settings:
        """Return the same: copies of an optimizer mean the same process set, layers and variables."""
        return self

    def without_model(self) -> Settings:
        """Return what does not belong to one model, and can be compared: groups of variables are lost, for example."""
        return dataclasses.replace(
            self,
            name=None,
            groups=self.groups if isinstance(self.groups, int) else None,
            local_layers=NOT_KEPT if _layers(self.local_layers) else None,
        )

    def differences(self, other: Settings) -> str:
        """Return the options that differ, as text: those of `self`; empty if there are none."""
        names = [field.name for field in dataclasses.fields(self)]
        ours, theirs = self._comparable(), other._comparable()
        return ", ".join(show(name, getattr(self, name)) for name in names if ours[name] != theirs[name])

    def _comparable(self) -> dict[str, Any]:
        values = dict(vars(self), local_layers=[id(layer) for layer in _layers(self.local_layers)])
        if isinstance(self.groups, (list, tuple)):  # whose variables answer == with tensors
            values["groups"] = [[key_of(variable) for variable in group] for group in self.groups]
        return values


def _layers(layers: Any) -> list[Any]:
    if layers is None:
        return []
    return list(layers) if isinstance(layers, (list, tuple)) else [layers]
