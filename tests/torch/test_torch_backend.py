# SPDX-License-Identifier: Apache-2.0
"""The backend "hvd" of torch.distributed: collectives, and what PyTorch builds on them."""

import os
import pathlib
import subprocess
import sys

import pytest
import ranks


def together(*counts):
    return ranks.in_one_start(*(counts or (2,)), preloaded="torch")


def start(backend="hvd"):
    """Initialize torch.distributed with a store of its own."""
    import tempfile

    import horovod.torch as hvd
    import torch.distributed as dist

    path = hvd.broadcast_object(tempfile.mktemp(dir="/tmp"))
    dist.init_process_group(backend, init_method=f"file://{path}", rank=hvd.rank(), world_size=hvd.size())
    return dist


@pytest.mark.row("p19")
@together(2, 3)
def test_collectives():
    import torch

    dist = start()
    rank, size = dist.get_rank(), dist.get_world_size()
    assert dist.get_backend() == "hvd"
    total = sum(range(size))
    for asynchronous in (False, True):
        for _ in range(20):

            def done(work, asynchronous=asynchronous):
                if asynchronous:
                    work.wait()

            tensor = torch.full((3, 2), float(rank))
            done(dist.all_reduce(tensor, async_op=asynchronous))
            assert tensor.tolist() == [[total] * 2] * 3
            tensor = torch.full((2,), rank)
            done(dist.all_reduce(tensor, dist.ReduceOp.MAX, async_op=asynchronous))
            assert tensor.tolist() == [size - 1] * 2
            tensor = torch.full((2, 3), float(rank)).t()
            done(dist.all_reduce(tensor, async_op=asynchronous))
            assert tensor.tolist() == [[total] * 2] * 3
            tensor = torch.full((2,), rank)
            done(dist.broadcast(tensor, size - 1, async_op=asynchronous))
            assert tensor.tolist() == [size - 1] * 2
            parts = [torch.empty(2) for _ in range(size)]
            done(dist.all_gather(parts, torch.full((2,), float(rank)), async_op=asynchronous))
            assert [one.tolist() for one in parts] == [[r] * 2 for r in range(size)]
            parts = [torch.empty(2) for _ in range(size)] if rank == 1 else None
            done(dist.gather(torch.full((2,), float(rank)), parts, dst=1, async_op=asynchronous))
            assert parts is None or [one.tolist() for one in parts] == [[r] * 2 for r in range(size)]
            own = torch.empty(2)
            parts = [torch.full((2,), float(r)) for r in range(size)] if rank == 0 else None
            done(dist.scatter(own, parts, src=0, async_op=asynchronous))
            assert own.tolist() == [rank] * 2
            done(dist.reduce_scatter(own, [torch.full((2,), float(r)) for r in range(size)], async_op=asynchronous))
            assert own.tolist() == [rank * size] * 2
            tensor = torch.ones(2)
            done(dist.reduce(tensor, 0, async_op=asynchronous))
            assert tensor.tolist() == ([size] * 2 if rank == 0 else [1] * 2)
            parts = [torch.empty(1) for _ in range(size)]
            done(dist.all_to_all(parts, [torch.tensor([10.0 * rank + r]) for r in range(size)], async_op=asynchronous))
            assert [one.item() for one in parts] == [10 * r + rank for r in range(size)]
            found = torch.empty(size * (rank + 1))
            mine = torch.full((sum(range(1, size + 1)),), float(rank))
            work = dist.all_to_all_single(
                found, mine, [rank + 1] * size, list(range(1, size + 1)), async_op=asynchronous
            )
            done(work)
            assert found.tolist() == [r for r in range(size) for _ in range(rank + 1)]
            done(dist.barrier(async_op=asynchronous))
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)]
    dist.destroy_process_group()


@together(2, 3)
def test_single_tensors_and_peers():
    import torch

    dist = start()
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = torch.empty(2 * size)
    dist.all_gather_into_tensor(whole, torch.full((2,), float(rank)))
    assert whole.tolist() == [r for r in range(size) for _ in range(2)]
    own = torch.empty(2)
    dist.reduce_scatter_tensor(own, torch.arange(2.0 * size), op=dist.ReduceOp.AVG)
    assert own.tolist() == [2 * rank, 2 * rank + 1]
    # Around in a ring.
    received = torch.empty(3)
    sends = dist.P2POp(dist.isend, torch.full((3,), float(rank)), (rank + 1) % size)
    receives = dist.P2POp(dist.irecv, received, (rank - 1) % size)
    for _ in range(20):
        for work in dist.batch_isend_irecv([sends, receives]):
            work.wait()
        assert received.tolist() == [(rank - 1) % size] * 3
    if rank == 0:
        dist.send(torch.tensor([7]), 1, tag=5)
    elif rank == 1:
        one = torch.empty(1, dtype=torch.int64)
        dist.recv(one, 0, tag=5)
        assert one.item() == 7
    # A group of some of the ranks.
    group = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [2, 2]
    with pytest.raises(NotImplementedError, match="there is no reduction"):
        dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.BXOR)
    dist.destroy_process_group()


def train(model, steps=4):
    import horovod.torch as hvd
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(10 * step + hvd.rank())
        model(torch.randn(4, 6, generator=generator, dtype=torch.float64)).square().mean().backward()
        optimizer.step()


def mlp():
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)]
    return torch.nn.Sequential(*layers).double()


def reference():
    import horovod.torch as hvd
    import torch

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        optimizer.zero_grad()
        for rank in range(hvd.size()):
            generator = torch.Generator().manual_seed(10 * step + rank)
            inputs = torch.randn(4, 6, generator=generator, dtype=torch.float64)
            (model(inputs).square().mean() / hvd.size()).backward()
        optimizer.step()
    return model


@together()
def test_calls_in_flight():
    import torch

    dist = start()
    rank = dist.get_rank()
    tensors = [torch.full((4,), float(number + rank)) for number in range(50)]
    if rank == 1:
        dist.barrier()  # rank 0 has made all of its calls by then
    works = [dist.all_reduce(one, async_op=True) for one in tensors]
    if rank == 0:
        dist.barrier()
    for work in reversed(works):
        work.wait()
    assert [one[0].item() for one in tensors] == [2 * number + 1 for number in range(50)]
    dist.all_reduce_coalesced(tensors)
    assert [one[3].item() for one in tensors] == [4 * number + 2 for number in range(50)]
    # A call that is waited for does not wait for those that were made before.
    if rank == 0:
        found = torch.zeros(2)
        late = dist.irecv(found, src=1)
        dist.all_reduce(torch.ones(3), async_op=True).wait()
        dist.send(torch.ones(2), dst=1)
        late.wait()
        assert found.tolist() == [2, 2]
    else:
        dist.all_reduce(torch.ones(3))
        dist.recv(torch.zeros(2), src=0)
        dist.send(torch.full((2,), 2.0), dst=0)
    dist.destroy_process_group()


@pytest.mark.row("p19")
@together()
def test_ddp():
    import torch

    dist = start()
    parallel = torch.nn.parallel.DistributedDataParallel
    expected = reference()
    for make in (
        lambda: parallel(mlp()),
        lambda: parallel(mlp(), static_graph=True, gradient_as_bucket_view=True),
        lambda: parallel(mlp(), find_unused_parameters=True),
        lambda: torch.compile(parallel(mlp()), backend="aot_eager"),
        lambda: parallel(torch.compile(mlp(), backend="aot_eager")),
    ):
        model = make()
        train(model)
        for one, other in zip(model.parameters(), expected.parameters()):
            assert torch.allclose(one, other, rtol=0, atol=1e-9)
    dist.destroy_process_group()


@together()
def test_sharded():
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist = start()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = mlp()
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model)
    for one, other in zip(model.parameters(), reference().parameters()):
        assert torch.allclose(one.full_tensor(), other, rtol=0, atol=1e-9)
    whole = torch.arange(12.0).view(4, 3)
    shard = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(shard.full_tensor(), whole)
    assert torch.equal(shard.redistribute(mesh, [Replicate()]).to_local(), whole)
    rows = init_device_mesh("cpu", (1, dist.get_world_size()), mesh_dim_names=("copies", "shards"))
    shard = distribute_tensor(whole, rows, [Replicate(), Shard(0)])
    assert torch.equal(shard.full_tensor(), whole)
    dist.destroy_process_group()


@together()
def test_functional_and_compiled():
    import torch
    import torch.distributed._functional_collectives as functional

    dist = start()
    group = dist.group.WORLD

    def body(x):
        return functional.all_reduce(x * 2, "sum", group) + functional.all_gather_tensor(x, 0, group).sum()

    expected = body(torch.ones(3)).tolist()
    assert expected == [4.0 + 6.0] * 3
    compiled = torch.compile(body, backend="aot_eager")
    for _ in range(3):
        assert compiled(torch.ones(3)).tolist() == expected
    dist.destroy_process_group()


def test_known_without_an_import():
    # Both ranks write to one pipe, and print() may write a line in parts.
    program = (
        "import os, torch, torch.distributed as dist; dist.init_process_group('hvd'); x = torch.ones(2); "
        "dist.all_reduce(x); os.write(1, f'{x.tolist()} {dist.get_backend()}\\n'.encode()); "
        "dist.destroy_process_group()"
    )
    torchrun = pathlib.Path(sys.executable).parent / "torchrun"
    command = [torchrun, "--standalone", "--nproc-per-node", "2", "--no-python", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL, check=False)
    assert done.stdout.count("[2.0, 2.0] hvd\n") == 2, done.stdout + done.stderr


def test_pytorch_imports_beside_a_broken_installation():
    command, broken = [sys.executable, "-c", "import torch"], dict(os.environ, HVD_LIBRARY="/does/not/exist")
    done = subprocess.run(command, env=broken, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@ranks.on_ranks(2, preloaded="torch")
def test_lost_rank():
    import torch

    dist = start()
    model = torch.nn.parallel.DistributedDataParallel(mlp())
    train(model, steps=2)
    if dist.get_rank() == 1:
        os._exit(0)
    with pytest.raises(RuntimeError, match="rank 1"):
        train(model, steps=3)
    with pytest.raises(RuntimeError, match="rank 1"):
        dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
    os._exit(0)


@ranks.on_ranks(2, preloaded="torch")
def test_beside_gloo_and_destroyed():
    import torch

    dist = start("gloo")
    group = dist.new_group(backend="hvd")
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [4] * 3
    if dist.get_rank() == 0:  # the other rank never does it
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
    dist.barrier()
    dist.destroy_process_group(group)
    if dist.get_rank() == 0:
        with pytest.raises(RuntimeError, match=r"destroyed|shut down|left"):
            work.wait()
