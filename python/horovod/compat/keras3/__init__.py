# SPDX-License-Identifier: Apache-2.0
"""
Bridges from programs for Keras 2 to Keras 3 on TensorFlow.

Each adds what Keras 3 refuses: a keyword, a name, a method. What Keras 3 takes goes its own way.
"""

from __future__ import annotations

import sys
import warnings


def build() -> None:
    """Build them in the Keras that the program has imported; nothing to do in Keras 2 and on other backends."""
    keras = sys.modules["keras"]
    if not getattr(keras, "__version__", "").startswith("3.") or keras.config.backend() != "tensorflow":
        return
    from horovod.compat.keras3 import backend, moved, optimizers, scaling, training, variables

    for bridges in (optimizers, scaling, training, variables, backend, moved):
        try:
            bridges.build(keras)
        except Exception as error:  # of a Keras that is not known here: programs of today need no bridge
            warnings.warn(
                f"{bridges.__name__} knows no way into Keras {keras.__version__} ({type(error).__name__}: {error}); "
                "HOROVOD_COMPAT=0 builds no bridges",
                stacklevel=2,
            )
