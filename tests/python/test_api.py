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
SIGNATURES = {
    "allreduce": {
        "tensor": inspect.Parameter.empty,
        "average": None,
        "name": None,
        "compression": NONE,
        "op": None,
        "prescale_factor": 1.0,
        "postscale_factor": 1.0,
        "process_set": GPS,
    },
    "allreduce_": REDUCE,
    "allreduce_async": REDUCE,
    "allreduce_async_": REDUCE,
    "allgather": GATHER,
    "allgather_async": GATHER,
    "broadcast": BROADCAST,
    "broadcast_": BROADCAST,
    "broadcast_async": BROADCAST,
    "broadcast_async_": BROADCAST,
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


NOT_YET = [
    "alltoall",
    "alltoall_async",
    "reducescatter",
    "reducescatter_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
]


@pytest.mark.parametrize("name", NOT_YET)
def test_what_does_not_exist_yet_says_so(name):
    with pytest.raises(NotImplementedError, match=f"horovod.numpy.{name} does not exist"):
        getattr(hvd, name)([1])


def test_what_the_build_can_use():
    assert [hvd.mpi_built(), hvd.mpi_enabled(), hvd.gloo_built(), hvd.gloo_enabled()] == [False] * 4
    assert [hvd.ddl_built(), hvd.ccl_built(), hvd.cuda_built(), hvd.rocm_built()] == [False] * 4
    assert hvd.nccl_built() == 0
    with pytest.raises(ValueError, match="MPI is not enabled"):
        hvd.mpi_threads_supported()
    with pytest.raises(ValueError, match="timeline"):
        hvd.start_timeline("x.json")
    with pytest.raises(ValueError, match="timeline"):
        hvd.stop_timeline()
