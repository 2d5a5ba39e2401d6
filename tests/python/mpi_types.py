# SPDX-License-Identifier: Apache-2.0
"""Be one rank that reduces every type in every way, and compares bit for bit: see test_mpi_operations.py."""

import horovod.numpy as hvd
import ml_dtypes
import numpy as np
from reference import reduce, same_bits

TYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", ml_dtypes.bfloat16]
# The last one is above the bytes of one round, for the small types in two.
COUNTS = [0, 1, 3, 1000, 5_000_001]


def values(rank: int, dtype: np.dtype, count: int) -> np.ndarray:
    """Return what a rank brings: small whole numbers, and in floats a NaN and an infinity."""
    numbers = (np.arange(count) * 7 + rank * 3) % 11 - (0 if dtype.kind == "u" else 5)
    array = numbers.astype(dtype)
    if dtype.kind not in "ui" and count > 2:
        array[0] = np.nan if rank == 0 else 1
        array[1] = np.inf
    return array


hvd.init()
for dtype in map(np.dtype, TYPES):
    for count in COUNTS if dtype.itemsize <= 4 else COUNTS[:-1]:
        inputs = [values(rank, dtype, count) for rank in range(hvd.size())]
        for op in (hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
            result = hvd.allreduce(inputs[hvd.rank()], op=op, name=f"{dtype} {count} {op}")
            expected = reduce(op, inputs, dtype)
            assert same_bits(result, expected), (dtype, count, op, result[:5], expected[:5])
for op in (hvd.Min, hvd.Max):
    flags = hvd.allreduce(np.array([True, hvd.rank() == 0, False]), op=op, name=f"bool {op}")
    assert flags.tolist() == [True, op == hvd.Max, False]
hvd.shutdown()
