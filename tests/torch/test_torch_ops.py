# SPDX-License-Identifier: Apache-2.0
"""The operations on tensors, against what one process computes from all ranks' tensors."""

import pytest
import ranks


def together(function):
    return ranks.in_one_start(2, 3, preloaded="torch")(function)


def _tensors(dtype, shape=(4, 3)):
    """All ranks' tensors: every rank can make them."""
    import horovod.torch as hvd
    import torch

    made = []
    for rank in range(hvd.size()):
        generator = torch.Generator().manual_seed(rank)
        whole = torch.randint(0, 9, shape, generator=generator)
        made.append(whole.to(dtype))
    return made


@pytest.mark.row("p4")
@together
def test_allreduce_of_all_types():
    import horovod.torch as hvd
    import torch

    names = ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
    for name in names:
        dtype = getattr(torch, name)
        every = _tensors(dtype)
        own = every[hvd.rank()]
        total = sum(one.to(torch.float64) for one in every).to(dtype)
        assert torch.equal(hvd.allreduce(own, op=hvd.Sum), total), name
        assert torch.equal(own, every[hvd.rank()]), "the input has changed"
        largest = torch.stack([one.to(torch.float64) for one in every]).max(0).values.to(dtype)
        assert torch.equal(hvd.allreduce(own, op=hvd.Max, name=f"max.{name}"), largest), name
        in_place = own.clone()
        assert hvd.allreduce_(in_place, op=hvd.Sum) is in_place
        assert torch.equal(in_place, total)
    flags = torch.tensor([hvd.rank() == 0, False])
    assert hvd.allreduce(flags, op=hvd.Max).tolist() == [True, False]


@together
def test_an_operation_that_repeats():
    import horovod.torch as hvd
    import torch

    every = _tensors(torch.float32)
    total = sum(every)
    for step in range(5):
        for op, expected in ((hvd.Sum, total), (None, total / hvd.size())):
            assert torch.allclose(hvd.allreduce(every[hvd.rank()], name="repeat", op=op), expected), (step, op)
            target = every[hvd.rank()].clone()
            hvd.allreduce_(target, name="repeat", op=op)
            assert torch.allclose(target, expected)
            handle = hvd.allreduce_async_(every[hvd.rank()].clone(), name="repeat", op=op)
            assert torch.allclose(hvd.synchronize(handle), expected)
        # Another shape and another type under the same name.
        assert hvd.allreduce(torch.ones(step + 1), name="repeat", op=hvd.Sum).tolist() == [hvd.size()] * (step + 1)
        assert hvd.allreduce(torch.ones(3, dtype=torch.int64), name="repeat", op=hvd.Sum).tolist() == [hvd.size()] * 3


@together
def test_repeating_after_another_start():
    import horovod.torch as hvd
    import torch

    for life in range(3):
        for _ in range(3):
            assert hvd.allreduce_(torch.ones(2), name=f"life {life % 2}", op=hvd.Sum).tolist() == [hvd.size()] * 2
        hvd.shutdown()
        hvd.init()
        # The ids of this life are given to other operations.
        for _ in range(3):
            assert hvd.allreduce_(torch.ones(4, dtype=torch.int32), name="first", op=hvd.Max).tolist() == [1] * 4


@together
def test_repeating_from_two_threads():
    import threading

    import horovod.torch as hvd
    import torch

    wrong = []

    def work(name):
        for step in range(200):
            found = hvd.allreduce_(torch.full((8,), float(step)), name=name, op=hvd.Sum)
            if found.tolist() != [float(step) * hvd.size()] * 8:
                wrong.append((name, step))

    threads = [threading.Thread(target=work, args=(f"thread {i}",)) for i in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


@together
def test_memory_of_the_arena():
    import gc

    import horovod.torch as hvd
    import torch

    tensor = hvd.empty(1000, dtype=torch.float64)
    assert tensor.tolist() == [0.0] * 1000
    assert hvd.empty((2, 3)).dtype == torch.float32
    assert hvd.empty(0).shape == (0,)
    tensor.fill_(hvd.rank() + 1)
    assert hvd.allreduce_(tensor, op=hvd.Sum, name="arena")[0] == sum(range(1, hvd.size() + 1))
    handle = hvd.allreduce_async_(hvd.empty(100).fill_(1), op=hvd.Sum)
    gc.collect()
    others = [hvd.empty(100).fill_(7) for _ in range(10)]
    assert hvd.synchronize(handle).tolist() == [hvd.size()] * 100
    assert all(one.tolist() == [7] * 100 for one in others)
    part = hvd.allgather(torch.ones(2))
    view = part[1:]
    del part
    gc.collect()
    assert view.tolist() == [1] * (2 * hvd.size() - 1)


@together
def test_scale_and_compression():
    import horovod.torch as hvd
    import pytest
    import torch

    own = torch.full((5,), 2.0)
    assert hvd.allreduce(own, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0).tolist() == [3.0 * hvd.size()] * 5
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        reduced = hvd.allreduce(own, op=hvd.Sum, compression=compression)
        assert reduced.dtype == torch.float32
        assert reduced.tolist() == [2.0 * hvd.size()] * 5
        assert hvd.allreduce(own.int(), op=hvd.Sum, compression=compression).dtype == torch.int32
        grouped = hvd.grouped_allreduce([own, own.int()], op=hvd.Sum, compression=compression)
        assert [one.dtype for one in grouped] == [torch.float32, torch.int32]
        small = hvd.reducescatter(torch.ones(hvd.size(), 2), op=hvd.Sum, compression=compression)
        assert small.tolist() == [[hvd.size()] * 2]
        history = own.clone().requires_grad_()
        hvd.allreduce(history, op=hvd.Sum, compression=compression).sum().backward()
        assert history.grad.tolist() == [hvd.size()] * 5
    with pytest.warns(DeprecationWarning, match="average is deprecated"):
        assert hvd.allreduce(own, average=False).tolist() == [2.0 * hvd.size()] * 5
    with pytest.raises(ValueError, match="exclusive"):
        hvd.allreduce(own, average=True, op=hvd.Sum)
    with pytest.raises(TypeError, match="compression"):
        hvd.allreduce(own, compression="fp16")


@together
def test_allgather_and_broadcast():
    import horovod.torch as hvd
    import torch

    rank, size = hvd.rank(), hvd.size()
    own = torch.full((rank, 2), float(rank))
    expected = torch.cat([torch.full((r, 2), float(r)) for r in range(size)])
    assert torch.equal(hvd.allgather(own), expected)
    assert torch.equal(hvd.synchronize(hvd.allgather_async(own, name="rows")), expected)
    one, two = hvd.grouped_allgather([own, own.int()[:, :1]])
    assert torch.equal(one, expected)
    assert torch.equal(two, expected.int()[:, :1])
    one, two = hvd.synchronize(hvd.grouped_allgather_async([own, own], name="both"))
    assert torch.equal(one, two)
    for root in range(size):
        own = torch.full((3,), rank)
        assert hvd.broadcast(own, root).tolist() == [root] * 3
        assert own.tolist() == [rank] * 3
        assert hvd.synchronize(hvd.broadcast_async(own, root, name="b")).tolist() == [root] * 3
        assert hvd.synchronize(hvd.broadcast_async_(own.clone(), root)).tolist() == [root] * 3
        assert hvd.broadcast_(own, root) is own
        assert own.tolist() == [root] * 3


@together
def test_alltoall_and_reducescatter():
    import horovod.torch as hvd
    import torch

    rank, size = hvd.rank(), hvd.size()
    assert hvd.alltoall(torch.arange(size) + 10 * rank).tolist() == [10 * r + rank for r in range(size)]
    splits = torch.tensor([r + 1 for r in range(size)], dtype=torch.int64)
    rows = torch.full((int(splits.sum()), 2), float(rank))
    found, received = hvd.alltoall(rows, splits)
    assert received.dtype == torch.int64
    assert received.tolist() == [rank + 1] * size
    assert found[:, 0].tolist() == [float(r) for r in range(size) for _ in range(rank + 1)]
    found, received = hvd.synchronize(hvd.alltoall_async(rows, splits.tolist(), name="a"))
    assert received.dtype == torch.int32
    whole = torch.arange(float(2 * size + 1))
    parts = [whole[:3]] + [whole[3 + 2 * r : 5 + 2 * r] for r in range(size - 1)]
    assert torch.equal(hvd.reducescatter(whole), parts[rank])
    assert torch.equal(hvd.reducescatter(whole, op=hvd.Sum), parts[rank] * size)
    assert torch.equal(hvd.synchronize(hvd.reducescatter_async(whole, op=hvd.Sum)), parts[rank] * size)
    one, two = hvd.grouped_reducescatter([whole, whole * 2])
    assert torch.equal(one * 2, two)
    one, two = hvd.synchronize(hvd.grouped_reducescatter_async([whole, whole * 2]))
    assert torch.equal(one * 2, two)


@pytest.mark.row("p4")
@together
def test_groups():
    import horovod.torch as hvd
    import torch

    tensors = [
        torch.full((n,), float(hvd.rank()), dtype=dtype) for n in (1, 5) for dtype in (torch.float32, torch.int32)
    ]
    total = sum(range(hvd.size()))
    expected = [[total] * one.numel() for one in tensors]
    assert [one.tolist() for one in hvd.grouped_allreduce(tensors, op=hvd.Sum)] == expected
    handle = hvd.grouped_allreduce_async(tensors, op=hvd.Sum, name="group")
    assert [one.tolist() for one in hvd.synchronize(handle)] == expected
    handle = hvd.grouped_allreduce_async_([one.clone() for one in tensors], op=hvd.Sum)
    assert [one.tolist() for one in hvd.synchronize(handle)] == expected
    assert hvd.grouped_allreduce_(tensors, op=hvd.Sum) is tensors
    assert [one.tolist() for one in tensors] == expected
    assert hvd.grouped_allreduce([]) == []
    assert hvd.synchronize(hvd.grouped_allreduce_async([])) == []


@pytest.mark.row("p5")
@together
def test_gradients():
    import horovod.torch as hvd
    import torch

    rank, size = hvd.rank(), hvd.size()
    total = size * (size + 1) / 2  # of rank + 1

    def gradient(function, shape, weight=None):
        tensor = torch.arange(float(torch.Size(shape).numel())).view(shape).requires_grad_()
        output = function(tensor)
        (output * (rank + 1 if weight is None else weight)).sum().backward()
        return tensor.grad

    for name in (None, "named"):
        found = gradient(lambda t, name=name: hvd.allreduce(t, op=hvd.Sum, name=name), (3,))
        assert found.tolist() == [total] * 3
        found = gradient(lambda t, name=name: hvd.allreduce(t, name=name), (3,))
        assert torch.allclose(found, torch.full((3,), total / size))
    found = gradient(lambda t: hvd.allreduce(t, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5), (3,))
    assert found.tolist() == [total] * 3
    found = gradient(lambda t: sum(hvd.grouped_allreduce([t, 2 * t], op=hvd.Sum)), (3,))
    assert found.tolist() == [3 * total] * 3
    found = gradient(hvd.allgather, (rank + 1, 2))
    assert torch.allclose(found, torch.full((rank + 1, 2), total / size))
    found = gradient(lambda t: hvd.grouped_allgather([t, t])[1], (rank + 1, 2))
    assert torch.allclose(found, torch.full((rank + 1, 2), total / size))
    for root in range(size):
        found = gradient(lambda t, root=root: hvd.broadcast(t, root), (2,))
        assert torch.allclose(found, torch.full((2,), total / size if rank == root else 0.0))
    found = gradient(hvd.alltoall, (size,))
    assert found.tolist() == [r + 1 for r in range(size)]
    splits = [1] * size
    found = gradient(lambda t: hvd.alltoall(t, splits)[0], (size + 2,))
    assert found.tolist() == [r + 1 for r in range(size)] + [0, 0]
    found = gradient(hvd.reducescatter, (size, 2))
    assert found.tolist() == [[r + 1.0] * 2 for r in range(size)]
    found = gradient(lambda t: hvd.reducescatter(t, op=hvd.Sum), (size,))
    assert found.tolist() == [size * (r + 1.0) for r in range(size)]
    found = gradient(lambda t: hvd.grouped_reducescatter([t, t])[0], (size,))
    assert found.tolist() == [r + 1.0 for r in range(size)]
    # The gradient of a gradient.
    tensor = torch.ones(2, requires_grad=True)
    (first,) = torch.autograd.grad(hvd.allreduce(tensor**2, op=hvd.Sum).sum(), tensor, create_graph=True)
    first.sum().backward()
    assert tensor.grad.tolist() == [2.0 * size] * 2


@together
def test_what_has_no_gradient():
    import horovod.torch as hvd
    import pytest
    import torch

    tensor = torch.ones(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match=r"hvd\.Max has no gradient: give it tensor\.detach"):
        hvd.allreduce(tensor, op=hvd.Max)
    assert hvd.allreduce(tensor.detach(), op=hvd.Max).tolist() == [1, 1]
    with torch.no_grad():
        assert not hvd.allreduce(tensor).requires_grad
    assert hvd.allreduce_(torch.nn.Parameter(torch.ones(2)), op=hvd.Sum).requires_grad


@pytest.mark.row("p4")
@together
def test_sparse():
    import horovod.torch as hvd
    import pytest
    import torch

    rank, size = hvd.rank(), hvd.size()
    own = torch.sparse_coo_tensor([[0, rank, rank]], [[1.0, 2.0]] * 3, (size + 1, 2))
    total = sum(torch.sparse_coo_tensor([[0, r, r]], [[1.0, 2.0]] * 3, (size + 1, 2)).to_dense() for r in range(size))
    wait = hvd.sparse_allreduce_async(own, name="sparse", op=hvd.Sum)
    found = wait()
    assert found.is_sparse
    assert torch.equal(found.to_dense(), total)
    assert torch.allclose(hvd.sparse_allreduce_async(own, None, hvd.Average)().to_dense(), total / size)
    nothing = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0, 2), (3, 2))
    assert hvd.sparse_allreduce_async(nothing, None, hvd.Sum)().to_dense().tolist() == [[0, 0]] * 3
    with pytest.raises(ValueError, match=r"use hvd\.sparse_allreduce_async"):
        hvd.allreduce(own)
    with pytest.raises(ValueError, match=r"use hvd\.allreduce_async"):
        hvd.sparse_allreduce_async(torch.ones(2), None, hvd.Sum)
    with pytest.raises(NotImplementedError, match=r"to_dense"):
        hvd.sparse_allreduce_async(own, None, hvd.Max)


@together
def test_wrong_arguments():
    import horovod.torch as hvd
    import pytest
    import torch

    with pytest.raises(TypeError, match=r"is a list: give a torch\.Tensor"):
        hvd.allreduce([1.0, 2.0])
    with pytest.raises(NotImplementedError, match=r"device meta.*give tensor\.cpu\(\)"):
        hvd.allreduce(torch.ones(2, device="meta"))
    with pytest.raises(ValueError, match="complex64, which is not supported"):
        hvd.allreduce(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(ValueError, match=r"works in place: tensor has shape \(3, 2\) and strides \(1, 3\)"):
        hvd.allreduce_(torch.ones(2, 3).t())
    assert hvd.allreduce(torch.ones(2, 3).t(), op=hvd.Sum).shape == (3, 2)
    whole = torch.ones(4)
    with pytest.raises(ValueError, match="share memory"):
        hvd.grouped_allreduce_([whole[:3], whole[2:]])
    with pytest.raises(TypeError, match=r"tensors\[1\]"):
        hvd.grouped_allreduce([torch.ones(1), None])
    with pytest.raises(TypeError, match="is no text"):
        hvd.allreduce(torch.ones(1), name=3)
    for name in (None, "named"):
        with pytest.raises(ValueError, match="is no reduction"):
            hvd.allreduce_(torch.ones(1), op=17, name=name)
        with pytest.raises(TypeError, match="is no process set"):
            hvd.allreduce_(torch.ones(1), process_set=[0], name=name)
    with pytest.raises(ValueError, match="scalar has none"):
        hvd.reducescatter(torch.tensor(1.0))
    with pytest.raises(ValueError, match="there is no operation"):
        hvd.poll(12345)
    assert hvd.synchronize(12345) is None
    # The ranks are still in step.
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


@together
def test_disagreement():
    import horovod.torch as hvd
    import pytest
    import torch

    for _ in range(3):
        hvd.allreduce_(torch.ones(2), name="agreed", op=hvd.Sum)
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched"):
        hvd.allreduce_(torch.ones(2 if hvd.rank() else 3), name="agreed", op=hvd.Sum)
    assert hvd.allreduce_(torch.ones(2), name="agreed", op=hvd.Sum).tolist() == [hvd.size()] * 2


@together
def test_join_and_barrier():
    import horovod.torch as hvd
    import torch

    hvd.barrier()
    for step in range(hvd.rank() * 2):
        found = hvd.allreduce(torch.ones(2), op=hvd.Sum, name="uneven")
        assert found.tolist() == [sum(1 for r in range(hvd.size()) if r * 2 > step)] * 2
    assert hvd.join() == hvd.size() - 1


@pytest.mark.row("p12")
@together
def test_parameters_and_objects():
    import horovod.torch as hvd
    import pytest
    import torch

    rank = hvd.rank()
    torch.manual_seed(rank)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 2, dtype=torch.float64),
    ).to(memory_format=torch.channels_last)
    assert not model[0].weight.is_contiguous()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    torch.manual_seed(0)
    expected = torch.nn.Conv2d(3, 4, 3).weight
    assert torch.equal(model[0].weight, expected)
    assert not model[0].weight.is_contiguous()
    hvd.broadcast_parameters(model.named_parameters(), root_rank=0)
    odd = {
        "complex": torch.full((2,), complex(rank, 1)),
        "uint32": torch.tensor([rank], dtype=torch.uint32),
        "transposed": torch.full((2, 3), rank).t(),
        "scalar": torch.tensor(rank),
        "not a tensor": rank,
    }
    hvd.broadcast_parameters(odd, root_rank=1)
    assert odd["complex"].tolist() == [1 + 1j] * 2
    assert odd["uint32"].tolist() == [1]
    assert odd["transposed"].tolist() == [[1, 1]] * 3
    assert odd["scalar"].item() == 1
    assert odd["not a tensor"] == rank
    hvd.broadcast_parameters([torch.ones(1), torch.zeros(1)], root_rank=0)
    for wrong in (torch.ones(1), "text", [("a", 1, 2)]):
        with pytest.raises(ValueError, match="give a"):
            hvd.broadcast_parameters(wrong, root_rank=0)
    assert hvd.broadcast_object({"rank": rank}, root_rank=1) == {"rank": 1}
    assert hvd.allgather_object(torch.tensor(rank)) == list(range(hvd.size()))


@pytest.mark.row("p12")
@together
def test_state_of_optimizers():
    import horovod.torch as hvd
    import torch

    makers = (
        lambda p: torch.optim.SGD(p, lr=0.1 + hvd.rank()),
        lambda p: torch.optim.SGD(p, lr=0.1 + hvd.rank(), momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=0.1 + hvd.rank(), amsgrad=True),
        lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1 + hvd.rank()), fused=False),
        lambda p: torch.optim.LBFGS(p, lr=0.1 + hvd.rank()),
    )
    for make in makers:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = make(model.parameters())
        if hvd.rank() == 0:  # the others have no state yet
            for _ in range(3):
                optimizer.step(lambda optimizer=optimizer, model=model: _loss(optimizer, model))
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
        assert float(optimizer.param_groups[0]["lr"]) == float(torch.tensor(0.1)) or (
            optimizer.param_groups[0]["lr"] == 0.1
        )
        for _ in range(2):
            optimizer.step(lambda optimizer=optimizer, model=model: _loss(optimizer, model))
        every = hvd.allgather_object([one.detach() for one in model.parameters()])
        assert all(torch.equal(one, other) for other in every for one, other in zip(every[0], other)), make


def _loss(optimizer, model):
    import torch

    optimizer.zero_grad()
    loss = (model(torch.ones(4, 3)) ** 2).sum()
    loss.backward()
    return loss


@pytest.mark.row("p11")
@together
def test_sync_batch_norm():
    import horovod.torch as hvd
    import torch

    rank, size = hvd.rank(), hvd.size()
    for shape, plain in (((0, 3), torch.nn.BatchNorm1d), ((0, 3, 4, 5), torch.nn.BatchNorm2d)):
        for momentum in (0.1, None):
            generator = torch.Generator().manual_seed(1)
            batches = [
                100 + torch.randn(2 + r, *shape[1:], generator=generator, dtype=torch.float64) for r in range(size)
            ]
            alone = plain(3, momentum=momentum).double()
            synced = hvd.SyncBatchNorm.convert_sync_batchnorm(
                torch.nn.Sequential(plain(3, momentum=momentum).double())
            )[0]
            assert type(synced) is hvd.SyncBatchNorm
            for _ in range(2):
                whole = torch.cat(batches).requires_grad_()
                own = batches[rank].clone().requires_grad_()
                weights = torch.cat([torch.full_like(one, r + 1) for r, one in enumerate(batches)])
                expected = alone(whole)
                (expected**3 * weights).sum().backward()
                found = synced(own)
                (found**3 * (rank + 1)).sum().backward()
                begin = sum(2 + r for r in range(rank))
                assert torch.allclose(found, expected[begin : begin + 2 + rank], atol=1e-7)
                assert torch.allclose(own.grad, whole.grad[begin : begin + 2 + rank], atol=1e-5)
            assert torch.allclose(synced.running_mean, alone.running_mean)
            assert torch.allclose(synced.running_var, alone.running_var)
            grad = hvd.allreduce(synced.weight.grad, op=hvd.Sum)
            assert torch.allclose(grad, alone.weight.grad)
            synced.eval()
            alone.eval()
            assert torch.allclose(synced(batches[0]), alone(batches[0]))
    half = hvd.SyncBatchNorm(3).bfloat16()
    assert half(torch.randn(4, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16


@together
def test_check_in_sync():
    import horovod.torch as hvd
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, dtype=torch.bfloat16))
    hvd.check_in_sync(model)
    hvd.check_in_sync([torch.ones(2), torch.tensor([True]), torch.tensor(1j)])
    if hvd.rank() == 1:
        model[1].weight.data[0, 0] += 1
    with pytest.raises(hvd.HorovodSyncError, match=r"1\.weight.*hvd\.broadcast_parameters"):
        hvd.check_in_sync(model)
    hvd.broadcast_parameters(model.state_dict(), root_rank=1)
    hvd.check_in_sync(model.state_dict())


@together
def test_inside_compiled_code():
    import horovod.torch as hvd
    import torch

    def function(x):
        y = hvd.allreduce(x * 2, op=hvd.Sum, name="compiled")
        return y + 1

    compiled = torch.compile(function, backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(3)).tolist() == [2.0 * hvd.size() + 1] * 3
    weight = torch.ones(3, requires_grad=True)
    compiled(weight).sum().backward()
    assert weight.grad.tolist() == [2.0 * hvd.size()] * 3


@pytest.mark.row("p13")
@ranks.on_ranks(3, sets=[[0, 2], [1]], preloaded="torch")
def test_process_sets():
    import horovod.torch as hvd
    import torch

    pair, alone = globals()["SETS"]
    mine = pair if pair.included() else alone
    total = 2.0 if mine is alone else 4.0
    for _ in range(3):
        found = hvd.allreduce_(torch.full((2,), hvd.rank() + 1.0), op=hvd.Sum, name="of a set", process_set=mine)
        assert found.tolist() == [total] * 2
    assert hvd.allgather(torch.tensor([hvd.rank()]), process_set=mine).tolist() == mine.ranks
    assert hvd.broadcast(torch.tensor(hvd.rank()), mine.ranks[-1], process_set=mine).item() == mine.ranks[-1]
    tensor = torch.ones(2, 1, requires_grad=True)
    hvd.allgather(tensor, process_set=mine).sum().backward()
    assert tensor.grad.tolist() == [[1.0]] * 2
