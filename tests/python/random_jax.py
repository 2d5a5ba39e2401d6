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

import numpy as np

TYPES = ["uint8", "int8", "uint16", "int16", "int32", "float16", "float32", "bfloat16", "bool"]
KINDS = ["allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "grouped"]


def _signature(choose: random.Random) -> tuple:
    kind, dtype = choose.choice(KINDS), choose.choice(TYPES)
    if kind == "reducescatter" and dtype == "bool":
        dtype = "float32"  # bool has no sum
    return kind, dtype, choose.randint(0, 2), choose.randint(1, 7), choose.randint(0, 3)


def _options(signature: tuple) -> tuple[str, dict]:
    import horovod.jax as hvd

    kind, dtype, _, _, number = signature
    if dtype == "bool":
        op = [hvd.Min, hvd.Max][number % 2]
    else:
        op = [hvd.Average, hvd.Sum, hvd.Min, hvd.Max][number % 2 if kind == "reducescatter" else number]
    if kind == "broadcast":
        return kind, {"root_rank": number % hvd.size()}
    if kind in ("allgather", "alltoall"):
        return kind, {}
    return "grouped_allreduce" if kind == "grouped" else kind, {"op": op}


def compare(operations: int, signatures: int, seed: int) -> dict[str, int]:
    """Do random operations by both; return how often each kind was done."""
    import horovod.jax as hvd
    import horovod.numpy as hnp
    import jax
    import jax.numpy as jnp

    choose = random.Random(seed)  # the same on all ranks
    own = np.random.default_rng([seed, hvd.rank()])
    known = [_signature(choose) for _ in range(signatures)]
    programs: dict[tuple, object] = {}
    done = dict.fromkeys(KINDS, 0)
    for number in range(operations):
        signature = choose.choice(known)
        kind, dtype, rows, columns, _ = signature
        function, options = _options(signature)
        array = (own.normal(size=(hvd.size() * rows, columns)) * 50).astype(jnp.dtype(dtype))
        tensors = [array, array[:, :1].copy()] if kind == "grouped" else array
        if signature not in programs:
            programs[signature] = jax.jit(functools.partial(getattr(hvd, function), name=str(signature), **options))
        found = jax.tree.leaves(programs[signature](tensors))
        wanted = jax.tree.leaves(getattr(hnp, function)(tensors, name=f"n{signature}", **options))
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
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
