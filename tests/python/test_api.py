# SPDX-License-Identifier: Apache-2.0
"""Names and signatures: a program written for horovod.torch finds the same ones here."""

import inspect

import horovod.numpy as hvd
import pytest

GPS = hvd.global_process_set
NONE = hvd.Compression.none

REDUCE = {
    "tensor": inspect.Parameter.empty,
    "average": None,
    "name": None,
    "op": None,
    "prescale_factor": 1.0,
    "postscale_factor": 1.0,
    "process_set": GPS,
}
GATHER = {"tensor": inspect.Parameter.empty, "name": None, "process_set": GPS}
BROADCAST = {
    "tensor": inspect.Parameter.empty,
    "root_rank": inspect.Parameter.empty,
    "name": None,
    "process_set": GPS,
}
REDUCE_COMPRESSED = {
    "tensor": inspect.Parameter.empty,
    "average": None,
    "name": None,
    "compression": NONE,
    "op": None,
    "prescale_factor": 1.0,
    "postscale_factor": 1.0,
    "process_set": GPS,
}
EXCHANGE = {"tensor": inspect.Parameter.empty, "splits": None, "name": None, "process_set": GPS}
SCATTER = {
    "tensor": inspect.Parameter.empty,
    "name": None,
    "op": hvd.Average,
    "process_set": GPS,
    "prescale_factor": 1.0,
    "postscale_factor": 1.0,
}
SCATTER_COMPRESSED = {
    "tensor": inspect.Parameter.empty,
    "name": None,
    "compression": NONE,
    "op": hvd.Average,
    "process_set": GPS,
    "prescale_factor": 1.0,
    "postscale_factor": 1.0,
}


def _grouped(parameters):
    return {"tensors" if name == "tensor" else name: default for name, default in parameters.items()}


SIGNATURES = {
    "allreduce": REDUCE_COMPRESSED,
    "allreduce_": REDUCE,
    "allreduce_async": REDUCE,
    "allreduce_async_": REDUCE,
    "allgather": GATHER,
    "allgather_async": GATHER,
    "broadcast": BROADCAST,
    "broadcast_": BROADCAST,
    "broadcast_async": BROADCAST,
    "broadcast_async_": BROADCAST,
    "grouped_allreduce": _grouped(REDUCE_COMPRESSED),
    "grouped_allreduce_": _grouped(REDUCE),
    "grouped_allreduce_async": _grouped(REDUCE),
    "grouped_allreduce_async_": _grouped(REDUCE),
    "grouped_allgather": _grouped(GATHER),
    "grouped_allgather_async": _grouped(GATHER),
    "alltoall": EXCHANGE,
    "alltoall_async": EXCHANGE,
    "reducescatter": SCATTER_COMPRESSED,
    "reducescatter_async": SCATTER,
    "grouped_reducescatter": _grouped(SCATTER_COMPRESSED),
    "grouped_reducescatter_async": _grouped(SCATTER),
    "join": {"device": -1},
    "add_process_set": {"process_set": inspect.Parameter.empty},
    "remove_process_set": {"process_set": inspect.Parameter.empty},
    "poll": {"handle": inspect.Parameter.empty},
    "synchronize": {"handle": inspect.Parameter.empty},
    "barrier": {"process_set": GPS},
    "broadcast_parameters": {"params": inspect.Parameter.empty, "root_rank": inspect.Parameter.empty},
    "broadcast_object": {"obj": inspect.Parameter.empty, "root_rank": 0, "name": None, "process_set": GPS},
    "allgather_object": {"obj": inspect.Parameter.empty, "name": None, "process_set": GPS},
    "init": {"comm": None, "process_sets": None},
    "start_timeline": {"file_path": inspect.Parameter.empty, "mark_cycles": False},
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    found = {p.name: p.default for p in inspect.signature(getattr(hvd, name)).parameters.values()}
    assert found == SIGNATURES[name]
    assert list(found) == list(SIGNATURES[name])


def test_every_exported_name_exists_and_has_a_docstring():
    for name in hvd.__all__:
        value = getattr(hvd, name)
        if callable(value):
            assert value.__doc__, name


def test_constants():
    assert [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product] == [0, 1, 2, 3, 4, 5]


def test_what_the_build_can_use():
    assert hvd.mpi_built()
    assert [hvd.mpi_enabled(), hvd.gloo_built(), hvd.gloo_enabled()] == [False] * 3
    assert [hvd.ddl_built(), hvd.ccl_built(), hvd.cuda_built(), hvd.rocm_built()] == [False] * 4
    assert hvd.nccl_built() == 0
    with pytest.raises(ValueError, match="MPI is not enabled"):
        hvd.mpi_threads_supported()
