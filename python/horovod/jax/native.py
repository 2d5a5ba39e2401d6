# SPDX-License-Identifier: Apache-2.0
"""Makes the library's function known to JAX, once per process."""

from __future__ import annotations

from typing import Any

import jax

from horovod.common import library

TARGET = "hvd_collective"
_OLDEST = (0, 4, 38)


def _interface() -> Any:
    """Return JAX's module for functions of others."""
    if jax.__version_info__ < _OLDEST:
        wanted = ".".join(map(str, _OLDEST))
        raise ImportError(f"horovod.jax needs JAX {wanted} or newer, and this is {jax.__version__}")
    try:
        import jax.ffi as interface
    except ImportError:  # before 0.5
        import jax.extend.ffi as interface
    return interface


ffi = _interface()
ffi.register_ffi_target(TARGET, ffi.pycapsule(library.load().hvd_jax_collective), platform="cpu")
