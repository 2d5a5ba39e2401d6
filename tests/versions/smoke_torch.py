# SPDX-License-Identifier: Apache-2.0
"""
What must work with every PyTorch that is supported; run by `tests/versions/run.sh torch` on two ranks.

Plain assertions and one process per rank, so that it needs nothing but the wheel and PyTorch.
"""

import os
import sys
import tempfile

import horovod.torch as hvd
import torch
import torch.distributed as dist


def operations():
    rank, size = hvd.rank(), hvd.size()
    x = torch.tensor([1.0, 2.0]) * (rank + 1)
    total = size * (size + 1) / 2
    for _ in range(100):
        assert hvd.allreduce(x, op=hvd.Sum, name="sum").tolist() == [total, 2 * total]
        assert hvd.allreduce_(x.clone(), op=hvd.Sum, name="in place").tolist() == [total, 2 * total]
        assert hvd.synchronize(hvd.allreduce_async(x, op=hvd.Max, name="async")).tolist() == [size, 2 * size]
        rows = hvd.allgather(torch.full((rank + 1,), rank), name="rows")
        assert rows.tolist() == [one for one in range(size) for _ in range(one + 1)]
        assert hvd.broadcast(x, root_rank=1, name="root").tolist() == [2.0, 4.0]
        exchanged = hvd.alltoall(torch.arange(size) + 10 * rank, name="all")
        assert exchanged.tolist() == [10 * one + rank for one in range(size)]
        assert hvd.reducescatter(torch.ones(size), op=hvd.Sum, name="part").tolist() == [size]
        group = hvd.grouped_allreduce([x, x.to(torch.bfloat16)], op=hvd.Sum, name="group")
        assert group[1].tolist() == [total, 2 * total]
    hvd.barrier()
    y = x.clone().requires_grad_()
    hvd.allreduce(y, op=hvd.Sum, name="gradient").sum().backward()
    assert y.grad.tolist() == [size, size]


def difference(one, other):
    return max(float((a - b).detach().abs().max()) for a, b in zip(one.parameters(), other.parameters()))


def training():
    rank, size = hvd.rank(), hvd.size()
    data = torch.randn(8, size, 6, 5, generator=torch.Generator().manual_seed(0))

    def train(distributed, make, batches):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        optimizer = make(model.parameters())
        if distributed:
            optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        for batch in batches:
            optimizer.zero_grad()
            (model(batch) - batch.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
        return model

    for make in (
        lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
        lambda params: torch.optim.AdamW(params, lr=0.01, foreach=True),
    ):
        alone = train(False, make, data.reshape(8, -1, 5))
        together = train(True, make, data[:, rank])
        assert difference(alone, together) < 5e-6
        hvd.check_in_sync(together)


def wrapped():
    torch.manual_seed(hvd.rank())
    model = hvd.wrap(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
    hvd.check_in_sync(model.module)
    layer = hvd.SyncBatchNorm(3)
    layer(torch.full((2 + hvd.rank(), 3), float(hvd.rank())))
    rows = sum(2 + rank for rank in range(hvd.size()))
    mean = sum(rank * (2 + rank) for rank in range(hvd.size())) / rows
    assert torch.allclose(layer.running_mean, torch.full((3,), 0.1 * mean))


def backend():
    name = f"hvd-smoke-{os.environ['HOROVOD_RENDEZVOUS_ADDR'].replace(':', '-')}"
    store = f"file://{tempfile.gettempdir()}/{name}"
    dist.init_process_group("hvd", init_method=store, rank=hvd.rank(), world_size=hvd.size())
    x = torch.full((3,), hvd.rank() + 1.0)
    dist.all_reduce(x)
    assert x.tolist() == [hvd.size() * (hvd.size() + 1) / 2] * 3
    parts = [torch.zeros(1) for _ in range(hvd.size())]
    dist.all_gather(parts, torch.full((1,), float(hvd.rank())))
    assert [part.item() for part in parts] == list(range(hvd.size()))
    dist.barrier()
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 5):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
        model(torch.full((2, 3), float(hvd.rank()))).sum().backward()
        assert torch.allclose(model.module.weight.grad, torch.full((1, 3), hvd.size() - 1.0))
    dist.destroy_process_group()


def error_of(call):
    try:
        call()
    except hvd.HorovodInternalError as error:
        return str(error)
    return "there was none"


def errors():
    text = error_of(lambda: hvd.allreduce(torch.ones(2 + hvd.rank()), name="wrong"))
    assert "Mismatched ALLREDUCE tensor shapes" in text, text


def main() -> None:
    """Be a rank."""
    torch.set_num_threads(1)
    hvd.init()
    for check in (operations, training, wrapped, backend, errors):
        check()
        if hvd.rank() == 0:
            print(f"PyTorch {torch.__version__}: {check.__name__} ok", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    sys.exit(main())
