# SPDX-License-Identifier: Apache-2.0
"""What horovodrun --check-build prints: what can be used here, and why the rest cannot."""

from __future__ import annotations

import importlib.util
import json
import sys

FRAMEWORKS = {
    "TensorFlow": ("horovod.tensorflow", "tensorflow"),
    "PyTorch": ("horovod.torch", "torch"),
    "JAX": ("horovod.jax", "jax"),
    "MXNet": ("horovod.mxnet", "mxnet"),
    "NumPy": ("horovod.numpy", "numpy"),
}
# What stands behind the name of something that can be used.
NOTES = {"Gloo": "hvd's own engine takes its place; hvd.gloo_built() is False"}
# Upstream's names. None: usable whenever the engine is.
CONTROLLERS = {"MPI": None, "Gloo": None}
OPERATIONS = {
    "NCCL": "GPUs are not supported in this release",
    "DDL": "this engine does not use it",
    "CCL": "this engine does not use it",
    "MPI": None,
    "Gloo": None,
}


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def _framework(binding: str, framework: str) -> str | None:
    if not _has(binding):
        return f"{binding} is not in this release"
    return None if _has(framework) else f"{framework} is not installed for {sys.executable}"


def _engine() -> str | None:
    from horovod.common.library import load

    try:
        load()
    except ImportError as error:
        return str(error)
    return None


def _mpi() -> str | None:
    from horovod.common.library import load

    return None if load().hvd_mpi_library() else load().hvd_last_error().decode()


def check() -> dict[str, dict[str, str | None]]:
    """Return, per heading, each thing and why it cannot be used; None: it can."""
    broken = _engine()
    no_mpi = broken or _mpi()
    controllers, operations = dict(CONTROLLERS, MPI=no_mpi), dict(OPERATIONS, MPI=no_mpi)
    engine = {"Available Controllers": controllers, "Available Tensor Operations": operations}
    return {
        "Available Frameworks": {name: _framework(*modules) for name, modules in FRAMEWORKS.items()},
        **{title: {name: why or broken for name, why in table.items()} for title, table in engine.items()},
    }


def main() -> int:
    """Command line."""
    import horovod

    found = check()
    if "--json" in sys.argv[1:]:
        print(json.dumps({"version": horovod.__version__, **found}))
        return 0
    print(f"Horovod v{horovod.__version__}:")
    for title, table in found.items():
        print(f"\n{title}:")
        for name, why in table.items():
            note = why or NOTES.get(name)
            print(f"    [{' ' if why else 'X'}] {name}{f' ({note})' if note else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
