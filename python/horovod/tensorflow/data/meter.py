# SPDX-License-Identifier: Apache-2.0
"""Counts the elements that a training process gets, for the line that the compute job shows."""

from __future__ import annotations

import threading
from typing import Any, Callable

_REPORT_S = 1.0


class Meter:
    """Counters behind data sets; once a second `report` gets how many elements came since the last time."""

    def __init__(self, report: Callable[[int], None]) -> None:
        self._report = report
        self._lock = threading.Lock()
        self._counters: list[Any] = []
        self._reported = 0
        self._ended = threading.Event()

    def behind(self, dataset: Any) -> Any:
        """Return the data set with a counter behind it."""
        import tensorflow as tf

        if not tf.executing_eagerly():  # a graph of TensorFlow 1 would have to initialize the counter
            return dataset
        counter = _make_counter()
        in_parts = type(dataset.element_spec) is tuple  # what `map` takes apart

        def count(*parts: Any) -> Any:
            counter.assign_add(1)
            return parts if in_parts else parts[0]

        with self._lock:
            if not self._counters:
                threading.Thread(target=self._run, name="hvd data service meter", daemon=True).start()
            self._counters.append(counter)
        return dataset.map(count)

    def close(self) -> None:
        """Report the rest."""
        self._ended.set()
        self._now()

    def _run(self) -> None:
        while not self._ended.wait(_REPORT_S):
            self._now()

    def _now(self) -> None:
        with self._lock:
            total = sum(int(counter.numpy()) for counter in self._counters)
            if total != self._reported:
                self._report(total - self._reported)
                self._reported = total


def _make_counter() -> Any:
    """Return a variable of this process alone, also in the scope of a strategy, which is the scope of a thread."""
    import tensorflow as tf

    made: list[Any] = []

    def make() -> None:
        with tf.device("CPU:0"):
            made.append(tf.Variable(0, dtype=tf.int64, trainable=False))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]
