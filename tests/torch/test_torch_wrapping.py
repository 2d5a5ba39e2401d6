# SPDX-License-Identifier: Apache-2.0
"""Models in the shape of DistributedDataParallel, and the communication hook for it."""

import os

import pytest
import ranks


def together(function):
    return ranks.in_one_start(2, preloaded="torch")(function)


def mlp():
    import torch

    layers = [torch.nn.Linear(6, 20), torch.nn.Tanh(), torch.nn.Linear(20, 20), torch.nn.Tanh(), torch.nn.Linear(20, 3)]
    return torch.nn.Sequential(*layers).double()


def inputs(step, rank):
    import torch

    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(4, 6, generator=generator, dtype=torch.float64)


def reference(steps, passes=1):
    """The model that one process has after training on all ranks' rows."""
    import horovod.torch as hvd
    import torch

    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        for one in range(passes):
            rows = torch.cat([inputs(passes * step + one, rank) for rank in range(hvd.size())])
            model(rows).square().mean().backward()
        optimizer.step()
    return model


def assert_same(model, expected):
    import horovod.torch as hvd
    import torch

    for one, other in zip(model.parameters(), expected.parameters()):
        assert torch.allclose(one, other, rtol=0, atol=1e-9)
    for every in zip(*hvd.allgather_object([one.detach() for one in model.parameters()])):
        assert all(torch.equal(every[0], one) for one in every)


@pytest.mark.row("p16")
@together
def test_wrap():
    import horovod.torch as hvd
    import torch

    torch.manual_seed(hvd.rank())  # rank 0's weights are those of all
    model = hvd.wrap(mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(5):
        optimizer.zero_grad()
        model(inputs(step, hvd.rank())).square().mean().backward()
        optimizer.step()
    assert_same(model.module, reference(5))
    assert next(iter(model.state_dict())) == "module.0.weight"


@together
def test_no_sync():
    import horovod.torch as hvd
    import torch

    torch.manual_seed(hvd.rank())
    model = hvd.wrap(mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        optimizer.zero_grad()
        with model.no_sync():
            model(inputs(2 * step, hvd.rank())).square().mean().backward()
        model(inputs(2 * step + 1, hvd.rank())).square().mean().backward()
        optimizer.step()
    assert_same(model.module, reference(3, passes=2))


@together
def test_after_a_backward_that_failed_and_in_an_elastic_job_without_a_state():
    import changing_job
    import horovod.torch as hvd
    import torch

    def fail(_):
        raise ZeroDivisionError

    with changing_job.ChangingJob():
        torch.manual_seed(hvd.rank())
        model = hvd.wrap(mlp())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(4):
            if step in (0, 2):
                hook = model.module[0].weight.register_hook(fail)
                with pytest.raises(ZeroDivisionError):
                    model(inputs(9, hvd.rank())).square().mean().backward()
                hook.remove()
            optimizer.zero_grad()
            model(inputs(step, hvd.rank())).square().mean().backward()
            optimizer.step()
        assert_same(model.module, reference(4))


@together
def test_buffers():
    import horovod.torch as hvd
    import torch

    model = hvd.wrap(torch.nn.BatchNorm1d(6).double())
    for step in range(3):
        model(inputs(step, hvd.rank())).sum().backward()
    model(inputs(3, 0))  # begins with rank 0's, and ends with the same rows
    every = hvd.allgather_object(model.module.running_mean)
    assert torch.equal(every[0], every[1])


@together
def test_a_part_without_gradient():
    import horovod.torch as hvd
    import torch

    torch.manual_seed(0)
    model = hvd.wrap(torch.nn.ModuleList([torch.nn.Linear(6, 1), torch.nn.Linear(6, 1)]).double())
    for step in range(3):
        model.zero_grad()
        model.module[hvd.rank() if step else 0](inputs(step, 0)).sum().backward()
        grads = [one.weight.grad for one in model.module]
        total = inputs(step, 0).sum(0, keepdim=True)
        if step == 0:
            assert torch.allclose(grads[0], total)
            assert grads[1] is None
        else:
            assert torch.allclose(grads[0], total / 2)
            assert torch.allclose(grads[1], total / 2)


@pytest.mark.row("p17")
@together
def test_hook_of_ddp():
    import tempfile

    import horovod.torch as hvd
    import torch
    import torch.distributed as dist

    path = hvd.broadcast_object(tempfile.mktemp(dir="/tmp"))
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=hvd.rank(), world_size=hvd.size())
    torch.manual_seed(hvd.rank())
    model = torch.nn.parallel.DistributedDataParallel(mlp())
    model.register_comm_hook(None, hvd.ddp_comm_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(5):
        optimizer.zero_grad()
        model(inputs(step, hvd.rank())).square().mean().backward()
        optimizer.step()
    assert_same(model.module, reference(5))
    dist.destroy_process_group()


@ranks.on_ranks(2, preloaded="torch")
def test_hook_of_ddp_when_a_rank_is_lost():
    import tempfile

    import horovod.torch as hvd
    import pytest
    import torch
    import torch.distributed as dist

    path = hvd.broadcast_object(tempfile.mktemp(dir="/tmp"))
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=hvd.rank(), world_size=hvd.size())
    model = torch.nn.parallel.DistributedDataParallel(mlp())
    model.register_comm_hook(None, hvd.ddp_comm_hook)
    for step in range(3):  # the first ones use the process group, too
        model(inputs(step, hvd.rank())).sum().backward()
    if hvd.rank() == 1:
        os._exit(0)
    loss = model(inputs(1, 0)).sum()
    with pytest.raises(RuntimeError, match=r"rank 1"):
        loss.backward()
    os._exit(0)
