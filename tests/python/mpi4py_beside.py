# SPDX-License-Identifier: Apache-2.0
"""Be one of three ranks of a program that uses mpi4py, too: see test_mpi_mpi4py.py."""

import sys

first = sys.argv[1] == "mpi4py first"
if first:
    from mpi4py import MPI

import horovod.numpy as hvd  # noqa: E402
import numpy as np  # noqa: E402

if first:
    # Parts of the world, in another order than its own.
    part = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2, -MPI.COMM_WORLD.rank)
    hvd.init(comm=part)
    assert (hvd.rank(), hvd.size()) == (part.rank, part.size)
    assert hvd.allreduce(np.ones(3), op=hvd.Sum)[0] == part.size
    hvd.shutdown()
    hvd.init(comm=MPI.COMM_WORLD)
else:
    hvd.init()
    from mpi4py import MPI

    assert MPI.Query_thread() == MPI.THREAD_MULTIPLE
world = MPI.COMM_WORLD
assert (hvd.rank(), hvd.size()) == (world.rank, world.size)
assert hvd.mpi_enabled()
assert hvd.mpi_threads_supported()
handle = hvd.allreduce_async(np.ones(3), op=hvd.Sum, name="x")
assert world.allreduce(hvd.rank()) == 3
assert hvd.synchronize(handle)[0] == 3
