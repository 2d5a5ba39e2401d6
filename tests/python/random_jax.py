# SPDX-License-Identifier: Apache-2.0
"""
Random operations of horovod.jax inside of jax.jit, compared bit by bit with those of horovod.numpy.

    horovodrun -np 2 python tests/python/random_jax.py --operations 100000 --signatures 500
"""

from __future__ import annotations

import argparse
import functools
import random
import time
from typing import Any, Callable

import numpy as np

TYPES = [
    *("uint8", "int8", "uint16", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "bool"),
]
KINDS = [
    *("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier"),
    *("grouped_allreduce", "grouped_allgather", "grouped_reducescatter"),
]


def _signature(choose: random.Random) -> tuple:
    kind, dtype = choose.choice(KINDS), choose.choice(TYPES)
    if kind.endswith("reducescatter") and dtype == "bool":
        dtype = "float32"  # bool has no sum
    return kind, dtype, choose.randint(0, 2), choose.randint(1, 7), choose.randint(0, 3)


def _options(signature: tuple) -> dict:
    import horovod.jax as hvd

    kind, dtype, _, _, number = signature
    if kind == "broadcast":
        return {"root_rank": number % hvd.size()}
    if kind.endswith("reducescatter"):
        return {"op": [hvd.Average, hvd.Sum][number % 2]}
    if kind.endswith("allreduce"):
        ops = [hvd.Min, hvd.Max] * 2 if dtype == "bool" else [hvd.Average, hvd.Sum, hvd.Min, hvd.Max]
        return {"op": ops[number]}
    return {}


def _program(signature: tuple) -> Callable:
    """Return a compiled program with one operation."""
    import horovod.jax as hvd
    import jax

    function, options = getattr(hvd, signature[0]), {"name": str(signature), **_options(signature)}
    if signature[0] == "barrier":
        return jax.jit(lambda tensors: function(tensors=tensors, **options))
    return jax.jit(functools.partial(function, **options))


def _reference(signature: tuple, tensors: Any) -> Any:
    import horovod.numpy as hnp

    if signature[0] == "barrier":
        hnp.barrier()
        return tensors
    return getattr(hnp, signature[0])(tensors, name=f"n{signature}", **_options(signature))


def compare(operations: int, signatures: int, seed: int) -> dict[str, int]:
    """Do random operations by both; return how often each kind was done."""
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        return _compare(operations, signatures, seed)
    finally:
        jax.config.update("jax_enable_x64", before)


def _compare(operations: int, signatures: int, seed: int) -> dict[str, int]:
    import horovod.jax as hvd
    import jax
    import jax.numpy as jnp

    choose = random.Random(seed)  # the same on all ranks
    own = np.random.default_rng([seed, hvd.rank()])
    known = [_signature(choose) for _ in range(signatures)]
    programs: dict[tuple, Callable] = {}
    done = dict.fromkeys(KINDS, 0)
    for number in range(operations):
        signature = choose.choice(known)
        kind, dtype, rows, columns, _ = signature
        array = (own.normal(size=(hvd.size() * rows, columns)) * 50).astype(jnp.dtype(dtype))
        tensors = [array, array[:, :1].copy()] if kind.startswith("grouped") else array
        if signature not in programs:
            programs[signature] = _program(signature)
        found = jax.tree.leaves(programs[signature](tensors))
        wanted = jax.tree.leaves(_reference(signature, tensors))
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            assert one.dtype == other.dtype, (number, signature)
            assert np.asarray(one).tobytes() == other.tobytes(), (number, signature)
        done[kind] += 1
    return done


def main() -> None:
    """Command line."""
    import horovod.jax as hvd

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--signatures", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    hvd.init()
    begin = time.monotonic()
    done = compare(options.operations, options.signatures, options.seed)
    if hvd.rank() == 0:
        kinds = ", ".join(f"{count} {kind}" for kind, count in done.items())
        seconds = time.monotonic() - begin
        print(f"{options.operations} operations of {hvd.size()} ranks equal bit by bit in {seconds:.0f} s: {kinds}")


if __name__ == "__main__":
    main()
