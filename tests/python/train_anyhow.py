# SPDX-License-Identifier: Apache-2.0
"""A NumPy program that knows nothing of how it is started. Its words are further arguments of init as Python."""

import os
import sys

import horovod.numpy as hvd
import numpy as np

arguments = eval(f"dict({sys.argv[1]})") if len(sys.argv) > 1 else {}
hvd.init(**arguments)
weights = np.full(1000, float(hvd.rank() + 1), np.float32)
summed = hvd.allreduce(weights, op=hvd.Sum, name="weights")
assert summed[0] == sum(range(1, hvd.size() + 1)), summed[0]
gathered = hvd.allgather(np.full((hvd.rank() + 1, 2), hvd.rank(), np.int64), name="rows")
assert len(gathered) == sum(range(1, hvd.size() + 1))
hvd.shutdown()
hvd.init(**arguments)  # and again, in the same processes
same = hvd.broadcast(np.arange(5.0) * (hvd.rank() + 1), root_rank=hvd.size() - 1, name="weights")
assert same[1] == hvd.size(), same
line = f"rank {hvd.rank()} of {hvd.size()} local {hvd.local_rank()} of {hvd.local_size()} mpi {hvd.mpi_enabled()}\n"
os.write(1, line.encode())  # whole, whatever the launcher does to lines
