# SPDX-License-Identifier: Apache-2.0
"""
The implementation behind both strategies: TensorFlow's hooks, served by the operations of horovod.tensorflow.

Every rank is one replica. TensorFlow's MirroredExtended provides the variables, and this class replaces everything that
involves other ranks. The class starts no server, no thread and no collective of TensorFlow.
"""

from __future__ import annotations

import types
from typing import Any, Callable

import tensorflow as tf

from horovod.tensorflow import mpi_ops
from horovod.tensorflow.strategy import exchange, keras_hooks, private


class _Replica(private.ReplicaContext):
    """The context in which a replica's function runs."""

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """
        Return the sums or averages over all ranks, in the structure of `value`.

        TensorFlow's own method wraps all values into one node to give them a gradient. That node would make every
        update wait for the last gradient. hvd's operations have gradients already.
        """
        kind = tf.distribute.ReduceOp(reduce_op.upper()) if isinstance(reduce_op, str) else reduce_op

        def reduce(strategy: Any, *values: Any) -> list[Any]:
            return strategy.extended.batch_reduce_to(kind, [(one, one) for one in values], options)

        return tf.nest.pack_sequence_as(value, self.merge_call(reduce, args=tf.nest.flatten(value)))


class HorovodExtended(private.MirroredExtended):
    """
    One replica per rank of the job.

    Lifetime: the strategy owns the object; nothing works after hvd.shutdown().
    """

    def __init__(self, container: Any, device: str, variables_on_host: bool, uneven_inputs: bool) -> None:
        self._compute = private.canonicalize(device)
        self._rank, self._size = mpi_ops.rank(), mpi_ops.size()
        super().__init__(container, devices=(self._compute,))
        host = private.canonicalize(exchange.HOST)
        # TensorFlow calls the devices of variables parameter devices.
        self._devices = (host if variables_on_host else self._compute,)
        self.experimental_enable_get_next_as_optional = uneven_inputs
        # tf_keras reads these attributes to choose the rank that writes checkpoints.
        self._task_type, self._task_id = "worker", self._rank

    # ---- ranks

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """Where the forward and backward pass run."""
        return (self._compute,)

    @property
    def worker_devices_by_replica(self) -> list[list[str]]:
        """The same, as a list for each replica of this process."""
        return [[self._compute]]

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._size

    def _get_local_replica_id(self, replica_id_in_sync_group: Any) -> int:
        return 0

    def _get_replica_id_in_sync_group(self, replica_id: Any) -> int:
        return self._rank

    def _in_multi_worker_mode(self) -> bool:
        return True

    def _use_merge_call(self) -> bool:
        return True

    @property
    def experimental_between_graph(self) -> bool:
        """Every process has a graph of its own."""
        return True

    @property
    def should_checkpoint(self) -> bool:
        """Whether this rank writes checkpoints."""
        return self._rank == 0

    @property
    def should_save_summary(self) -> bool:
        """Whether this rank writes summaries."""
        return self._rank == 0

    # ---- the replica

    def _call_for_each_replica(self, fn: Callable, args: Any, kwargs: Any) -> Any:
        keras_hooks.install()
        context = _Replica(self._container_strategy(), replica_id_in_sync_group=self._rank)
        with context, tf.device(self._compute):
            own = private.select_replica(0, (tuple(args), dict(kwargs or {})))
            result = fn(*own[0], **own[1])
        return private.regroup((result,))

    # ---- variables

    def _create_variable(self, next_creator: Callable, **kwargs: Any) -> Any:
        keras_hooks.install()
        on_read = kwargs.get("synchronization") == tf.VariableSynchronization.ON_READ
        if on_read and kwargs.get("colocate_with") is None:
            # The step updates these variables, so they live where the step runs.
            kwargs["colocate_with"] = types.SimpleNamespace(_devices=(self._compute,))
        variable = super()._create_variable(next_creator, **kwargs)
        if not tf.compat.v1.executing_eagerly_outside_functions():
            for one in getattr(variable, "values", ()):
                _begin_with_roots_value(one)
        return variable

    def _get_variable_creator_initial_value(
        self, replica_id: int, device: str | None, primary_var: Any, **kwargs: Any
    ) -> Any:
        # In a v1 graph the value stays local, because hooks of TensorFlow read it on one rank alone.
        if not tf.compat.v1.executing_eagerly_outside_functions():
            return kwargs["initial_value"]

        def from_root() -> tf.Tensor:
            value = kwargs["initial_value"]
            value = value() if callable(value) else value
            if isinstance(value, private.CheckpointInitialValue):
                value = value.wrapped_value
            value = tf.convert_to_tensor(value, dtype=kwargs.get("dtype"))
            return exchange.from_root(value, kwargs.get("name") or "variable")

        return from_root

    # ---- values of all ranks

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        return tf.nest.map_structure(lambda one: self._reduced(reduce_op, one), value)

    def _reduced(self, reduce_op: Any, value: Any) -> Any:
        average = reduce_op == tf.distribute.ReduceOp.MEAN
        if average and isinstance(value, private.Mirrored):
            return value
        return exchange.reduce_all([_own(value)], average, exchange.name_without_numbers(value))[0]

    def _batch_reduce_to(self, reduce_op: Any, value_destination_pairs: Any, options: Any) -> list[Any]:
        average = reduce_op == tf.distribute.ReduceOp.MEAN
        return exchange.reduce_all([_own(value) for value, _ in value_destination_pairs], average)

    def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        return private.StrategyExtended._replica_ctx_all_reduce(self, reduce_op, value, options)

    def _gather_to_implementation(self, value: Any, destinations: Any, axis: Any, options: Any) -> tf.Tensor:
        return exchange.gather(_own(value), int(axis))

    # ---- input

    def _make_input_context(self) -> tf.distribute.InputContext:
        return tf.distribute.InputContext(
            num_input_pipelines=self._size, input_pipeline_id=self._rank, num_replicas_in_sync=self._size
        )

    def _experimental_distribute_dataset(self, dataset: Any, options: Any) -> Any:
        _check(options)
        return private.distributed_dataset(
            dataset,
            self._input_workers_with_options(options),
            self._container_strategy(),
            num_replicas_in_sync=self._size,
            input_context=self._make_input_context(),
            options=options,
        )

    def _distribute_datasets_from_function(self, dataset_fn: Callable, options: Any) -> Any:
        _check(options)
        return private.distributed_datasets_from_function(
            dataset_fn,
            self._input_workers_with_options(options),
            [self._make_input_context()],
            self._container_strategy(),
            options,
        )

    def _experimental_distribute_values_from_function(self, value_fn: Callable) -> Any:
        value = value_fn(private.ValueContext(self._rank, self._size))
        return private.regroup((value,), always_wrap=True)


def _own(value: Any) -> Any:
    return value.values[0] if isinstance(value, private.DistributedValues) else value


def _check(options: Any) -> None:
    per_replica = tf.distribute.InputReplicationMode.PER_REPLICA
    if options is not None and options.experimental_replication_mode == per_replica:
        raise NotImplementedError(
            "InputReplicationMode.PER_REPLICA is not supported: every rank has one replica, so leave the mode out"
        )


def _begin_with_roots_value(variable: Any) -> None:
    """Make the initializer of a v1 variable assign rank 0's value. All ranks run initializers."""
    value = variable._initial_value
    if value is None or mpi_ops.size() == 1:
        return
    with tf.device(variable.device):
        sent = exchange.from_root(tf.convert_to_tensor(value), variable.op.name)
        variable._initializer_op = tf.raw_ops.AssignVariableOp(resource=variable.handle, value=sent)
