# SPDX-License-Identifier: Apache-2.0
"""
Old programs on today's TensorFlow and Keras.

`import horovod.tensorflow` and `import horovod.keras` build harmless bridges: lines that Keras 3 refuses, because they
are written for Keras 2, work again. A program that has no such line sees nothing of them. HOROVOD_COMPAT=0 leaves them
out; HOROVOD_COMPAT=tf1 builds those for programs of TensorFlow 1, too. `python -m horovod.compat SCRIPT` says which
lines of a program need them, and what to write today.

>>> import horovod.compat
>>> horovod.compat.mode()
'1'
"""

from __future__ import annotations

import os

VARIABLE = "HOROVOD_COMPAT"
_MODES = ("0", "1", "tf1")
_built = False


def mode() -> str:
    """
    Return what HOROVOD_COMPAT asks for: "0", "1" (also without it) or "tf1"; ValueError for anything else.

    >>> import horovod.compat
    >>> horovod.compat.mode() in ("0", "1", "tf1")
    True
    """
    value = os.environ.get(VARIABLE) or "1"
    if value not in _MODES:
        raise ValueError(
            f"{VARIABLE}={value}: 0 leaves the bridges for old programs out, 1 builds those for Keras 2, "
            "tf1 those for TensorFlow 1, too"
        )
    return value


def build() -> None:
    """
    Build the bridges that HOROVOD_COMPAT asks for, as soon as the program imports what they lead to.

    horovod.tensorflow and horovod.keras call it. Nothing is imported here.

    >>> import horovod.compat
    >>> horovod.compat.build()
    """
    global _built
    wanted = mode()
    if _built or wanted == "0":
        return
    _built = True
    from horovod.compat import hooks

    hooks.after_import("keras", _bridge_keras)
    if wanted == "tf1":
        from horovod.compat import tf1  # noqa: F401  (builds them)


def _bridge_keras() -> None:
    from horovod.compat import keras3

    keras3.build()
