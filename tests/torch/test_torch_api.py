# SPDX-License-Identifier: Apache-2.0
"""Names and signatures of horovod.torch, and its behavior in a job of one process."""

import doctest
import importlib
import inspect
import subprocess
import sys

import horovod.numpy
import horovod.torch as hvd
import pytest
import torch

MODULES = [
    "mpi_ops",
    "reducing",
    "exchange",
    "grouped",
    "sparse",
    "functions",
    "adapter",
    "sync_batch_norm",
    "optimizer",
    "wrapping",
]


def test_every_name_is_there():
    assert [name for name in hvd.__all__ if not hasattr(hvd, name)] == []
    assert len(set(hvd.__all__)) == len(hvd.__all__)
    from horovod.torch import mpi_ops

    assert [name for name in mpi_ops.__all__ if not hasattr(mpi_ops, name)] == []
    assert mpi_ops._basics.size.__name__ == "size"


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in horovod.numpy.__all__
        if inspect.isfunction(getattr(horovod.numpy, name)) and name not in ("empty", "broadcast_parameters")
    ],
)
def test_signature_is_that_of_numpy(name):
    def plain(function):
        found = inspect.signature(function).parameters.values()
        return [(one.name, "compression" if one.name == "compression" else one.default) for one in found]

    assert plain(getattr(hvd, name)) == plain(getattr(horovod.numpy, name))


def test_signatures_of_torch_alone():
    assert [(one.name, one.default) for one in inspect.signature(hvd.DistributedOptimizer).parameters.values()] == [
        ("optimizer", inspect.Parameter.empty),
        ("named_parameters", None),
        ("compression", hvd.Compression.none),
        ("backward_passes_per_step", 1),
        ("op", hvd.Average),
        ("gradient_predivide_factor", 1.0),
        ("num_groups", 0),
        ("groups", None),
        ("sparse_as_dense", False),
        ("process_set", hvd.global_process_set),
    ]
    assert list(inspect.signature(hvd.sparse_allreduce_async).parameters) == ["tensor", "name", "op", "process_set"]
    assert list(inspect.signature(hvd.broadcast_parameters).parameters)[:2] == ["params", "root_rank"]
    assert list(inspect.signature(hvd.broadcast_optimizer_state).parameters)[:3] == ["optimizer", "root_rank", "model"]
    assert list(inspect.signature(hvd.SyncBatchNorm).parameters)[:5] == [
        "num_features",
        "eps",
        "momentum",
        "affine",
        "track_running_stats",
    ]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module):
    found = doctest.testmod(importlib.import_module(f"horovod.torch.{module}"))
    assert found.failed == 0


def test_before_init(no_engine):
    with pytest.raises(ValueError, match=r"hvd\.init\(\)"):
        hvd.allreduce(torch.ones(1))
    for _ in range(3):
        with pytest.raises(ValueError, match=r"hvd\.init\(\)"):
            hvd.allreduce_(torch.ones(1), name="a name")


def test_alone(engine):
    assert hvd.allreduce(torch.tensor([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert hvd.allgather(torch.ones(2, 3)).shape == (2, 3)
    layer = hvd.SyncBatchNorm(2)
    assert torch.allclose(layer(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum(), torch.tensor(0.0), atol=1e-6)


def test_import_leaves_the_compiler_alone():
    code = "import sys, horovod.torch; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
