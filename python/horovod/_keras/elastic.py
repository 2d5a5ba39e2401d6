# SPDX-License-Identifier: Apache-2.0
"""
The callbacks of elastic training, for whichever Keras: each is put before that one's Callback as a base class.

All of them report each batch and each epoch to the state's Progress, which acts on the first report alone. So the order
of the callbacks does not matter: what a commit keeps always includes the batch that has just ended.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from horovod.common.arguments import show, whole_number
from horovod.tensorflow.elastic import TensorFlowKerasState

_ATTRIBUTE = "_hvd_progress"


class Progress:
    """Which epoch and batch the training with a state has reached; `tracked` names what is written to the state."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self.tracked: set[str] = set()
        self._base: int | None = None  # of epochs that earlier calls of fit have done, if fit counts from 0
        self._batch = 0
        self._begun = (0, 0)  # batch and processed elements with which this call of an epoch began

    @staticmethod
    def of(state: Any, name: str = "") -> Progress:
        """Return the one of a state, which from now on tracks `name`."""
        if not isinstance(state, TensorFlowKerasState):
            raise TypeError(f"{show('state', state)} is no state of a Keras model: give hvd.elastic.KerasState(model)")
        if name and not hasattr(state, name):
            raise ValueError(f"the state has no {name}: make it by hvd.elastic.KerasState(model, {name}=0)")
        found = state.__dict__.setdefault(_ATTRIBUTE, Progress(state))
        if name:
            found.tracked.add(name)
        return found

    def begin_training(self) -> None:
        """Note that `fit` begins."""
        self._base = None

    def begin_epoch(self, epoch: int) -> None:
        """Note the number that `fit` gives to an epoch: it counts from 0 or from initial_epoch."""
        if self._base is None:
            self._base = self._state.epoch - epoch if "epoch" in self.tracked else 0
        self._batch = self._state.batch if "batch" in self.tracked else 0
        self._begun = (self._batch, getattr(self._state, "processed_num", 0))

    def end_batch(self, batch: int) -> None:
        """Note the number of a batch that has ended."""
        self._batch = batch + 1
        if "batch" in self.tracked:
            self._state.batch = self._batch
        shard = shard_of(self._state)
        if shard is not None:
            first, processed = self._begun
            self._state.processed_num = shard.done_after(processed, self._batch - first)

    def end_epoch(self, epoch: int) -> None:
        """Note the number of an epoch that has ended."""
        self._batch = 0
        if "batch" in self.tracked:
            self._state.batch = 0
        if shard_of(self._state) is not None:
            self._state.processed_num = 0
        if "epoch" in self.tracked:
            self._state.epoch = (self._base or 0) + epoch + 1


def shard_of(state: Any) -> Any:
    """Return how the data of a state is shared, or None if the program shares it itself."""
    shard = getattr(state, "_shard", None)
    if shard is not None and shard.steps_left() is None:
        raise ValueError(
            "hvd.elastic.shard: fit needs a data set with a known number of elements, and batch_size or global_batch"
        )
    return shard


class Reporting:
    """What the callbacks have in common."""

    _tracks = ""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._progress = Progress.of(state, self._tracks)

    def on_train_begin(self, logs: Any = None) -> None:
        """Report it."""
        self._progress.begin_training()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Report it."""
        self._progress.begin_epoch(epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Report it."""
        self._progress.end_batch(batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Report it."""
        self._progress.end_epoch(epoch)


class CommitState(Reporting):
    """Commits the state every `batches_per_commit` batches and at the end of each epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__(state)
        self.batches_per_commit = whole_number("batches_per_commit", batches_per_commit, "a whole number from 1 on")
        if self.batches_per_commit < 1:
            raise ValueError(f"{show('batches_per_commit', batches_per_commit)} is too small: give 1 or more")
        self._next = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Count batches from here."""
        super().on_epoch_begin(epoch, logs)
        self._next = self._progress._batch + self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Commit if it is due. The end of the epoch commits for its last batch."""
        super().on_train_batch_end(batch, logs)
        shard = shard_of(self.state)
        is_last = batch + 1 == (self.params or {}).get("steps") or (shard is not None and shard.steps_left() == 0)
        if batch + 1 >= self._next and not is_last:
            self._next = batch + 1 + self.batches_per_commit
            self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Commit."""
        super().on_epoch_end(epoch, logs)
        self.state.commit()


class UpdateBatchState(Reporting):
    """Keeps the number of batches of this epoch in `state.batch`, and begins an epoch that was interrupted there."""

    _tracks = "batch"

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Have `fit` go on where the state is."""
        super().on_epoch_begin(epoch, logs)
        if self.state.batch > 0 or shard_of(self.state) is not None:
            _go_on_at(self.state, self.model)


class UpdateEpochState(Reporting):
    """Keeps the number of epochs that are complete in `state.epoch`."""

    _tracks = "epoch"


def _go_on_at(state: Any, model: Any) -> None:
    """Have the epoch that is about to begin skip the batches that are done."""
    found = _of_fit(model)
    shard = shard_of(state)
    if found is not None:
        name, data, iterator = found
        if shard is not None:  # its elements are those that are left; only numbers of batches go on
            total = state.batch + shard.steps_left()
            iterator = itertools.repeat(None)
            setattr(data, "_num_batches" if name == "epoch_iterator" else "_inferred_steps", total)
            if state.batch == 0:
                return
        if name == "epoch_iterator" and hasattr(data, "_enumerate_iterator"):
            skipped = state.batch if shard is None else 0
            data._enumerate_iterator = lambda: _rest_of_epoch(data, state.batch, skipped)
            return
        if name == "data_handler" and hasattr(data, "_initial_step"):
            _skip_in_keras2(data, iterator, state)
            return
    warnings.warn(
        f"this Keras does not let an epoch begin at batch {state.batch}, so the whole epoch is repeated", stacklevel=4
    )
    state.batch = 0


def _of_fit(model: Any) -> tuple[str, Any, Any] | None:
    """Return what the `fit` of a model reads its batches from: Keras hands it to nobody."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "fit" and frame.f_locals.get("self") is model:
            for name in ("epoch_iterator", "data_handler"):
                if name in frame.f_locals:
                    return name, frame.f_locals[name], frame.f_locals.get("iterator")
        frame = frame.f_back
    return None


def _rest_of_epoch(data: Any, done: int, skipped: int) -> Iterator[tuple[int, int, Any]]:
    """As Keras 3's `_enumerate_iterator`, with numbers from `done` on and without the first batches, once."""
    del data._enumerate_iterator  # the next epoch is whole
    whole = data._get_iterator
    data._get_iterator = lambda: whole().skip(skipped)
    data._current_iterator = None
    total = data.steps_per_epoch or data._num_batches
    try:
        for first, last, iterator in data._enumerate_iterator():
            data.__dict__.pop("_get_iterator", None)
            if total and first + done >= total:
                data.data_adapter.on_epoch_end()
                break
            data._steps_seen = last + 1 + done
            yield first + done, last + done, iterator
    finally:
        data.__dict__.pop("_get_iterator", None)


def _skip_in_keras2(data: Any, iterator: Any, state: Any) -> None:
    # Keras 2 does not take an epoch without a batch, so the last one is repeated if all are done.
    total = data.inferred_steps
    done = state.batch = min(state.batch, total - 1) if total else state.batch
    for _ in range(done):
        next(iterator)
    data._initial_step = done
