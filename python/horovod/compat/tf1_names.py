# SPDX-License-Identifier: Apache-2.0
"""
The module `tensorflow` as a program of TensorFlow 1 sees it.

Libraries that are written for today's TensorFlow import the same module. So the module looks at the file that reads
an attribute: a library gets today's names; the program and its own modules get those of tf.compat.v1 first.
"""

from __future__ import annotations

import functools
import os
import sys
from types import FrameType, ModuleType
from typing import Any, Callable

from horovod.compat import hooks, tf1, tf1_eager, tf1_estimator, tf1_keras

_LIBRARIES = {"tensorflow", "keras", "tf_keras", "horovod"}
_is_library: dict[str, bool] = {}
# The same for everybody: `tf.compat.v1` leads to TensorFlow 1 in any case.
_SAME = {"compat", "version"}


def build() -> None:
    """Have it so from now on: graphs instead of eager execution, and the names."""
    tensorflow = sys.modules["tensorflow"]
    if isinstance(tensorflow, _TensorFlow1):
        return
    _start_graphs(tensorflow)
    train = tensorflow.compat.v1.train
    train.MonitoredTrainingSession = _with_global_step(train.MonitoredTrainingSession)
    tf1_estimator.offer(tensorflow)
    hooks.for_compat_v1(functools.partial(_bridge_v1, tensorflow))
    tensorflow.__class__ = _TensorFlow1


def _bridge_v1(tensorflow: ModuleType, v1: ModuleType) -> None:
    if not tf1.HAS_KERAS_2:
        tf1_keras.explain_what_is_missing(v1)
    v1.enable_eager_execution = tf1_eager.with_config(v1.enable_eager_execution, tensorflow)  # type: ignore[attr-defined]


def _start_graphs(tensorflow: ModuleType) -> None:
    # TensorFlow warns that resource variables should not be switched off; a program of TensorFlow 1 knows no others.
    logger = tensorflow.get_logger()
    level = logger.level
    logger.setLevel("ERROR")
    try:
        tensorflow.compat.v1.disable_v2_behavior()
    finally:
        logger.setLevel(level)


def _with_global_step(plain: Callable) -> Callable:
    # A session with a folder for checkpoints counts steps, also for a program that has not asked for a counter.
    @functools.wraps(plain)
    def MonitoredTrainingSession(*args: Any, **kwargs: Any) -> Any:
        sys.modules["tensorflow"].compat.v1.train.get_or_create_global_step()
        return plain(*args, **kwargs)

    return MonitoredTrainingSession


class _TensorFlow1(ModuleType):
    """Its attributes depend on who asks."""

    def __getattribute__(self, name: str) -> Any:
        plain = super().__getattribute__
        if name.startswith("_") or name in _SAME or _asked_by_library(sys._getframe(1)):
            return plain(name)
        v1 = plain("compat").v1
        if hasattr(v1, name):
            return getattr(v1, name)
        try:
            return plain(name)
        except AttributeError:
            _missing(name)
            raise

    def __setattr__(self, name: str, value: Any) -> None:
        # The program's `import tensorflow.keras` puts the Keras of TensorFlow 1 here, which is not that of libraries.
        if name != "keras":
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(super().__getattribute__("compat").v1)})


def _asked_by_library(frame: FrameType) -> bool:
    names = frame.f_globals
    root = str(names.get("__name__", "")).partition(".")[0]
    if root not in _is_library:
        _is_library[root] = root in _LIBRARIES or (root != "__main__" and _is_installed(names.get("__file__")))
    return _is_library[root]


def _is_installed(file: str | None) -> bool:
    folders = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
    return file is not None and any(folder in file for folder in folders)


def _missing(name: str) -> None:
    if name == "contrib":
        raise AttributeError(
            "TensorFlow has no tf.contrib any more; python -m horovod.compat SCRIPT lists the lines that need it"
        )
    raise AttributeError(f"module 'tensorflow' has no attribute {name!r}, not even in TensorFlow 1 (tf.compat.v1)")
