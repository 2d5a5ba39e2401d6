# SPDX-License-Identifier: Apache-2.0
"""
Names of operations. Ranks agree by name, so equal programs must make equal names.

TensorFlow's own names hold counters (of traces, of control flow, of Keras's layers) that differ between ranks as soon
as one of them does something for itself, such as building one more model. Names that are made here have none of them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from horovod.common.arguments import name_bytes
from horovod.common.library import load

# Graphs of branches and loops have counters in their names.
_CONTROL_FLOW = ("CondBranchFuncGraph", "WhileCondFuncGraph", "WhileBodyFuncGraph")
_COUNTS = "_hvd_call_counts"
_UNUSUAL = re.compile(r"[^a-zA-Z0-9_]")


def call_site(kind: str) -> str:
    """
    Return a name for this call of something that reduces several tensors.

    In a tf.function it holds the function's name and counts the calls of this kind there; a new trace begins at 0.
    Eager calls wait for their result, so they all have the same name.
    """
    if tf.executing_eagerly():
        return kind
    function = _function_of(tf.compat.v1.get_default_graph())
    name = getattr(function, "name", None) or "graph"
    return f"{name}.{kind}.{_count(function, kind)}"


def _function_of(graph: Any) -> Any:
    while type(graph).__name__ in _CONTROL_FLOW and graph.outer_graph is not None:
        graph = graph.outer_graph
    return graph


def _count(graph: Any, kind: str) -> int:
    counts = getattr(graph, _COUNTS, None)
    if counts is None:
        counts = {}
        setattr(graph, _COUNTS, counts)
    counts[kind] = counts.get(kind, 0) + 1
    return counts[kind] - 1


class _Slots:
    """Numbers of unnamed eager calls that are under way. Without threads it is always 0: a name that is known."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: dict[tuple[str, int], set[int]] = {}

    def take(self, kind: str, process_set: int) -> int:
        with self._lock:
            taken = self._taken.setdefault((kind, process_set), set())
            slot = next(number for number in range(len(taken) + 1) if number not in taken)
            taken.add(slot)
            return slot

    def give_back(self, kind: str, process_set: int, slot: int) -> None:
        with self._lock:
            self._taken[kind, process_set].discard(slot)


_slots = _Slots()


class _Labels(threading.local):
    of_next: Sequence[str] = ()


_labels = _Labels()
_known: dict[str, str] = {}


@contextmanager
def labels(paths: Sequence[str]) -> Iterator[None]:
    """Have timelines, stall reports and errors show these beside the name of the operation that is built inside."""
    _labels.of_next = paths
    try:
        yield
    finally:
        _labels.of_next = ()


def _label_operations(name: str) -> None:
    paths = _labels.of_next
    for number, path in enumerate(paths, start=1):
        full = f"{name}_{number}of{len(paths)}" if len(paths) > 1 else name
        if _known.get(full) != path:
            _known[full] = path
            load().hvd_label_tensor(None, full.encode("utf-8", "replace"), path.encode("utf-8", "replace"))


@contextmanager
def wire_name(
    op: str, tensors: list[Any], name: str | None, ignore_name_scope: bool, process_set: int
) -> Iterator[str]:
    """Give the name under which all ranks run this operation, for as long as it is being submitted."""
    if name is not None:
        name_bytes(name)
        name = name or None
    if not tf.executing_eagerly():
        labels = "_".join(_label(tensor) for tensor in tensors[:: max(len(tensors) - 1, 1)])
        base = _scoped(name or (f"{op}_{labels}" if labels else op), ignore_name_scope)
        # A name that comes again in a graph is another operation, which may run at the same time. Counted by process
        # set: ranks that are in other sets, too, build operations that this one does not have.
        number = _count(_function_of(tf.compat.v1.get_default_graph()), f"{process_set}:{base}")
        full = f"{base}_{number}" if number else base
        _label_operations(full)
        yield full
    elif name is not None:
        scoped = _scoped(name, ignore_name_scope)
        _label_operations(scoped)
        yield scoped
    else:
        slot = _slots.take(op, process_set)
        try:
            yield f"{op}.noname.{slot}"
        finally:
            _slots.give_back(op, process_set, slot)


def _scoped(name: str, ignore_name_scope: bool) -> str:
    if ignore_name_scope:
        return name.rsplit("/", 1)[-1]
    scope = "" if tf.executing_eagerly() else tf.compat.v1.get_default_graph().get_name_scope()
    return f"{scope}/{name}" if scope else name


def _label(tensor: Any) -> str:
    try:
        return _UNUSUAL.sub("_", tensor.name)
    except AttributeError:  # an eager tensor inside a graph has no name
        return "constant"
