# SPDX-License-Identifier: Apache-2.0
"""Loads libhvd_tensorflow.so into TensorFlow, once per process."""

from __future__ import annotations

import ctypes
import pathlib
from types import ModuleType

import tensorflow as tf

from horovod.common import library

NAME = "libhvd_tensorflow.so"
_OLDEST = (2, 13)

# Operations that tf.function must not order among themselves: ranks agree by name, and a later one need not wait.
_COLLECTIVES = (
    "HorovodAllreduce",
    "HorovodGroupedAllreduce",
    "HorovodAllgather",
    "HorovodGroupedAllgather",
    "HorovodBroadcast",
    "HorovodGroupedBroadcast",
    "HorovodAlltoall",
    "HorovodReducescatter",
    "HorovodGroupedReducescatter",
)


def _check_version() -> None:
    found = tuple(int(part) for part in tf.__version__.split(".")[:2])
    if found < _OLDEST:
        wanted = ".".join(map(str, _OLDEST))
        raise ImportError(f"horovod.tensorflow needs TensorFlow {wanted} or newer, and this is {tf.__version__}")


def _load() -> ModuleType:
    _check_version()
    # TensorFlow must be the first to open the file: it finds the operations that are registered meanwhile.
    path = pathlib.Path(library.load()._name).with_name(NAME)
    if not path.is_file():
        raise ImportError(f"{path} is missing: reinstall the hvd package")
    operations = tf.load_op_library(str(path))
    problem = ctypes.CDLL(str(path)).hvd_tensorflow_problem
    problem.restype = ctypes.c_char_p
    text = problem().decode()
    if text or not hasattr(operations, "horovod_allreduce"):
        raise ImportError(f"{path} cannot be used with TensorFlow {tf.__version__}: {text or 'it was opened before'}")
    return operations


def _let_them_overlap() -> None:
    # A table of TensorFlow's own: what must run, also if its result is not used, in any order. Where it is gone,
    # collectives of a tf.function run one after the other: slower, as right.
    try:
        from tensorflow.python.framework import auto_control_deps

        known = auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS
        auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS = frozenset(known).union(_COLLECTIVES)
    except (ImportError, AttributeError):
        pass


operations = _load()
_let_them_overlap()
