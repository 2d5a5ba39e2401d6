# SPDX-License-Identifier: Apache-2.0
"""
Every name of tensorflow.python that the strategies and the estimator use.

TensorFlow guarantees none of these names. They are the same from 2.13 to 2.21; `missing()` lists what a release lacks.
"""

from __future__ import annotations

from tensorflow.python.distribute import (
    device_util,
    distribute_lib,
    distribute_utils,
    input_util,
    mirrored_strategy,
    multi_worker_util,
    values,
)
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.trackable import base as trackable

Strategy = distribute_lib.Strategy
ReplicaContext = distribute_lib.ReplicaContext
ValueContext = distribute_lib.ValueContext
StrategyExtended = distribute_lib.StrategyExtendedV2
MirroredExtended = mirrored_strategy.MirroredExtended

DistributedVariable = values.DistributedVariable
DistributedValues = values.DistributedValues
Mirrored = values.Mirrored
SyncOnReadVariable = values.SyncOnReadVariable

CheckpointInitialValue = trackable.CheckpointInitialValue

regroup = distribute_utils.regroup
select_replica = distribute_utils.select_replica

canonicalize = device_util.canonicalize

distributed_dataset = input_util.get_distributed_dataset
distributed_datasets_from_function = input_util.get_distributed_datasets_from_function

id_in_cluster = multi_worker_util.id_in_cluster
worker_count = multi_worker_util.worker_count

# Attributes that hvd overrides, calls or sets on TensorFlow's objects.
_ATTRIBUTES = {
    Strategy: ("_scale_loss_for_estimator_enabled",),
    StrategyExtended: ("_replica_ctx_all_reduce", "_container_strategy"),
    MirroredExtended: (
        "_batch_reduce_to",
        "_call_for_each_replica",
        "_create_variable",
        "_distribute_datasets_from_function",
        "_experimental_distribute_dataset",
        "_experimental_distribute_values_from_function",
        "_gather_to_implementation",
        "_get_local_replica_id",
        "_get_replica_id_in_sync_group",
        "_get_variable_creator_initial_value",
        "_in_multi_worker_mode",
        "_input_workers_with_options",
        "_num_replicas_in_sync",
        "_reduce_to",
        "_use_merge_call",
        "experimental_between_graph",
        "should_checkpoint",
        "should_save_summary",
        "worker_devices",
        "worker_devices_by_replica",
    ),
    DistributedVariable: ("values", "_common_name", "_devices"),
    resource_variable_ops.BaseResourceVariable: ("_initial_value", "_initializer_op"),
}


def missing() -> list[str]:
    """
    Return the attributes that this TensorFlow lacks.

    >>> missing()
    []
    """
    return [
        f"{owner.__name__}.{name}"
        for owner, names in _ATTRIBUTES.items()
        for name in names
        # Objects get some attributes when they are made.
        if not hasattr(owner, name) and name not in owner.__init__.__code__.co_names
    ]
