# SPDX-License-Identifier: Apache-2.0
"""The estimator."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, Callable

import tensorflow as tf

from horovod.common.arguments import show
from horovod.common.objects import allgather_object, broadcast_object
from horovod.tensorflow import mpi_ops
from horovod.tensorflow.estimator import batches, session, steps
from horovod.tensorflow.estimator.config import EvalSpec, ModeKeys, RunConfig, TrainSpec
from horovod.tensorflow.within import reduces_for_itself

v1 = tf.compat.v1


class Estimator:
    """
    Trains and evaluates the graph of a model function, and writes checkpoints into a folder.

    With a strategy in `config`, all ranks call the same methods, rank 0 writes checkpoints, and every rank begins with
    them. If `model_dir` holds checkpoints, training resumes from the newest.
    """

    def __init__(
        self,
        model_fn: Callable,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        warm_start_from: Any = None,
    ) -> None:
        if warm_start_from is not None:
            raise NotImplementedError("warm_start_from does not exist here: restore in Scaffold(init_fn=...)")
        if not callable(model_fn):
            raise TypeError(f"{show('model_fn', model_fn)} is no function")
        self._config = config if config is not None else RunConfig()
        self._strategy = self._config.train_distribute
        if self._strategy is not None and not reduces_for_itself(self._strategy):
            raise TypeError(f"{show('train_distribute', self._strategy)} is no strategy of horovod.tensorflow.strategy")
        folder = model_dir or self._config.model_dir
        if folder is None and self._rank() == 0:
            folder = tempfile.mkdtemp(prefix="estimator-")
        self._folder = broadcast_object(folder, name="estimator.folder") if self._strategy is not None else folder
        self._model_fn, self._params = model_fn, dict(params or {})

    @property
    def model_fn(self) -> Callable:
        """The model function."""
        return self._model_fn

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints."""
        return self._folder

    @property
    def config(self) -> RunConfig:
        """The configuration."""
        return self._config

    @property
    def params(self) -> dict[str, Any]:
        """A copy of the argument `params` of the model function."""
        return dict(self._params)

    def latest_checkpoint(self) -> str | None:
        """Return the path of the newest checkpoint; None if this host has none."""
        return tf.train.latest_checkpoint(self._folder)

    def get_variable_names(self) -> list[str]:
        """Return the names of the variables in the newest checkpoint."""
        return [name for name, _ in tf.train.list_variables(self._folder)]

    def get_variable_value(self, name: str) -> Any:
        """Return a variable of the newest checkpoint as an array."""
        return tf.train.load_variable(self._folder, name)

    def train(
        self,
        input_fn: Callable,
        hooks: Sequence[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[Any] | None = None,
    ) -> Estimator:
        """
        Train for `steps` more steps, up to step `max_steps`, or until the input ends on any rank.

        Hooks run on every rank. If a hook runs collectives, it must run them on every rank.
        """
        if steps is not None and max_steps is not None:
            raise ValueError("steps and max_steps exclude each other: give one of them")
        for name, value in (("steps", steps), ("max_steps", max_steps)):
            if value is not None and value < 1:
                raise ValueError(f"{show(name, value)} is too small: give a number from 1 on")
        with self._graph() as strategy, tempfile.TemporaryDirectory(prefix="estimator-") as scratch:
            together = self._size() > 1 and strategy.extended.experimental_enable_get_next_as_optional
            step = self._step(_training, strategy, input_fn, ModeKeys.TRAIN, together)
            creator, scaffold = self._creator(step.spec.scaffold, self._own_checkpoint())
            wanted = [*(hooks or ()), *(step.spec.training_hooks or ())]
            wanted += self._training_hooks(step, scaffold, saving_listeners, scratch)
            if steps is not None or max_steps is not None:
                wanted.append(v1.train.StopAtStepHook(steps, max_steps))
            number = v1.train.get_global_step()
            with v1.train.MonitoredSession(session_creator=creator, hooks=wanted) as run:
                at = run.run_step_fn(lambda step_context: step_context.session.run(number))
                while not run.should_stop() and (max_steps is None or at < max_steps):
                    run.run([step.run, step.loss])
        if self._strategy is not None:
            mpi_ops.barrier()  # Rank 0 has written the last checkpoint.
        return self

    def evaluate(
        self,
        input_fn: Callable,
        steps: int | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """
        Return the metrics and the average loss over the inputs of all ranks, and the global step.

        Each rank evaluates its own input: `steps` batches of it, or the whole input. Without a checkpoint the variables
        have their initial values.
        """
        with self._graph() as strategy:
            step = self._step(_evaluation, strategy, input_fn, ModeKeys.EVAL, False)
            creator, _ = self._creator(step.spec.scaffold, checkpoint_path or self._own_checkpoint())
            values = {key: value for key, (value, _) in (step.spec.eval_metric_ops or {}).items()}
            final = v1.train.FinalOpsHook({**values, "global_step": v1.train.get_global_step()})
            wanted = [*(hooks or ()), *(step.spec.evaluation_hooks or ()), final]
            losses: list[float] = []
            with v1.train.MonitoredSession(session_creator=creator, hooks=wanted) as run:
                while not run.should_stop() and (steps is None or len(losses) < steps):
                    losses.append(float(run.run([step.loss, step.run])[0]))
        pairs = [(sum(losses), len(losses))]
        if self._strategy is not None:
            pairs = allgather_object(pairs[0], name="estimator.loss")
        if not sum(count for _, count in pairs):
            raise ValueError("input_fn gave no batch to evaluate")
        found = dict(final.final_ops_values)
        return {**found, "loss": sum(total for total, _ in pairs) / sum(count for _, count in pairs)}

    # ---- parts

    def _rank(self) -> int:
        return mpi_ops.rank() if self._strategy is not None else 0

    def _size(self) -> int:
        return mpi_ops.size() if self._strategy is not None else 1

    def _own_checkpoint(self) -> str | None:
        return self.latest_checkpoint() if self._rank() == 0 else None

    @contextlib.contextmanager
    def _graph(self) -> Iterator[Any]:
        strategy = self._strategy if self._strategy is not None else tf.distribute.get_strategy()
        with tf.Graph().as_default(), contextlib.ExitStack() as inside:
            # A scope belongs to the graph in which it was made, if execution is not eager.
            if self._strategy is not None:
                inside.enter_context(strategy.scope())
            if self._config.tf_random_seed is not None:
                v1.set_random_seed(self._config.tf_random_seed)
            v1.train.get_or_create_global_step()
            yield strategy

    def _step(self, make: Callable, strategy: Any, input_fn: Callable, mode: str, together: bool) -> steps.Step:
        context = tf.distribute.InputContext(self._size(), self._rank(), self._size())
        given = {"mode": mode, "params": self.params, "config": self._config}
        with tf.device("/device:CPU:0"):
            source = batches.call(input_fn, "input_fn", {**given, "input_context": context})
            batch = batches.tensors_of(source, together)
        return make(self._model_fn, strategy, batch, given)

    def _creator(self, scaffold: Any, checkpoint: str | None) -> tuple[session.Creator, Any]:
        if scaffold is None or scaffold.saver is None:
            saver = v1.train.Saver(
                max_to_keep=self._config.keep_checkpoint_max,
                keep_checkpoint_every_n_hours=self._config.keep_checkpoint_every_n_hours,
                sharded=False,
                defer_build=True,
            )
            scaffold = v1.train.Scaffold(saver=saver, copy_from_scaffold=scaffold)
        spreads = self._size() > 1
        return session.Creator(scaffold, self._config.session_config, checkpoint, spreads), scaffold

    def _training_hooks(self, step: steps.Step, scaffold: Any, listeners: Any, scratch: str) -> list[Any]:
        config, first = self._config, self._rank() == 0
        hooks: list[Any] = [v1.train.NanTensorHook(step.loss)]
        together = session.read_together()
        if together and config.save_checkpoints_secs is not None:
            raise ValueError(
                "the model has variables that all ranks read together, so all ranks save at the same step: give "
                "RunConfig(save_checkpoints_steps=...)"
            )
        if config.saves and (first or together):
            hooks.append(
                v1.train.CheckpointSaverHook(
                    # The files of other ranks have no reader.
                    self._folder if first else scratch,
                    save_secs=config.save_checkpoints_secs,
                    save_steps=config.save_checkpoints_steps,
                    scaffold=scaffold,
                    listeners=listeners if first else None,
                )
            )
        if first:
            hooks += step.spec.training_chief_hooks or ()
            shown = {"loss": step.loss, "step": v1.train.get_global_step()}
            if config.log_step_count_steps:
                hooks.append(v1.train.LoggingTensorHook(shown, every_n_iter=config.log_step_count_steps))
            if config.save_summary_steps and v1.get_collection(v1.GraphKeys.SUMMARIES):
                hooks.append(v1.train.SummarySaverHook(config.save_summary_steps, None, self._folder, None, scaffold))
        return hooks


_training, _evaluation = steps.training, steps.evaluation


def train_and_evaluate(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> tuple[dict[str, Any], Any]:
    """Train to train_spec.max_steps, evaluate once, and return the evaluation and None in the place of exports."""
    if not isinstance(train_spec, TrainSpec) or not isinstance(eval_spec, EvalSpec):
        raise TypeError("train_and_evaluate takes an Estimator, a TrainSpec and an EvalSpec")
    estimator.train(train_spec.input_fn, hooks=train_spec.hooks, max_steps=train_spec.max_steps)
    found = estimator.evaluate(eval_spec.input_fn, steps=eval_spec.steps, hooks=eval_spec.hooks, name=eval_spec.name)
    return found, None
