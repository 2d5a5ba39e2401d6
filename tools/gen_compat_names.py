# SPDX-License-Identifier: Apache-2.0
"""
Writes python/horovod/compat/names.txt: names that old programs use and today's modules miss. Needs TensorFlow.

A paragraph for each module, wrapped: its name with a colon, and the names. `tensorflow` has what tf.compat.v1 has and
tf has not, `tensorflow!` what means something else in each; `keras` what Keras 3 keeps for tf.keras alone.
"""

from __future__ import annotations

import importlib
import pathlib
import sys
import textwrap
import types

TARGET = pathlib.Path(__file__).resolve().parent.parent / "python" / "horovod" / "compat" / "names.txt"


def public(module: types.ModuleType) -> set[str]:
    """Return the names that a program may use."""
    return {name for name in dir(module) if not name.startswith("_")}


def of_tensorflow() -> dict[str, set[str]]:
    """Return the names of TensorFlow 1."""
    import tensorflow as tf

    v1 = tf.compat.v1
    found = {"tensorflow": public(v1) - public(tf), "tensorflow!": set()}
    for name in sorted(public(v1) & public(tf) - {"keras", "compat", "experimental", "version"}):
        old, new = getattr(v1, name), getattr(tf, name)
        if not isinstance(old, types.ModuleType):
            if old is not new:
                found["tensorflow!"].add(name)
            continue
        found[f"tensorflow.{name}"] = public(old) - public(new)
        found[f"tensorflow.{name}!"] = {
            one
            for one in public(old) & public(new)
            if getattr(old, one) is not getattr(new, one) and not isinstance(getattr(old, one), types.ModuleType)
        }
    return found


def of_keras() -> dict[str, set[str]]:
    """Return the names that are in tf.keras alone."""
    from horovod.compat.keras3.moved import FULLER_IN_TF_KERAS

    found = {}
    for name in FULLER_IN_TF_KERAS:
        fuller = importlib.import_module(f"keras._tf_keras.keras.{name}")
        found[f"keras.{name}"] = public(fuller) - public(importlib.import_module(f"keras.{name}"))
    return found


def text() -> str:
    """Return what the file must hold."""
    found = {**of_tensorflow(), **of_keras()}
    paragraphs = [f"{module}: {' '.join(sorted(names))}" for module, names in sorted(found.items()) if names]
    return "\n".join("\n".join(textwrap.wrap(one, 118, subsequent_indent="  ")) for one in paragraphs) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(0 if TARGET.read_text() == text() else f"{TARGET} is out of date: run tools/gen_compat_names.py")
    TARGET.write_text(text())
