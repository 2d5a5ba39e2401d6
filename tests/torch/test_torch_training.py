# SPDX-License-Identifier: Apache-2.0
"""Training on several ranks equals training in one process on the joined batch, and ranks have the same bits."""

import pytest
import ranks


def together(function):
    return ranks.in_one_start(2, preloaded="torch")(function)


def mlp(dtype=None):
    import torch

    torch.manual_seed(3)
    layers = [torch.nn.Linear(6, 20), torch.nn.Tanh(), torch.nn.Linear(20, 20), torch.nn.Tanh(), torch.nn.Linear(20, 3)]
    return torch.nn.Sequential(*layers).to(dtype or torch.float64)


def cnn():
    import torch

    torch.manual_seed(3)
    layers = [
        torch.nn.Conv2d(2, 4, 3),
        torch.nn.ReLU(),
        torch.nn.Conv2d(4, 4, 3),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 3),
    ]
    return torch.nn.Sequential(*layers).to(torch.float64).to(memory_format=torch.channels_last)


def embedding(sparse=True):
    import torch

    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Embedding(30, 5, sparse=sparse), torch.nn.Flatten(), torch.nn.Linear(20, 3))
    return model.to(torch.float64)


def batch(model, step, rank, rows=4):
    """A rank's inputs and targets of a step."""
    import torch

    generator = torch.Generator().manual_seed(1000 * step + rank)
    if isinstance(model[0], torch.nn.Embedding):
        inputs = torch.randint(0, 30, (rows, 4), generator=generator)
        dtype = torch.float64
    else:
        shape = (rows, 2, 6, 6) if isinstance(model[0], torch.nn.Conv2d) else (rows, 6)
        dtype = model[0].weight.dtype
        inputs = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    return inputs, torch.randn(rows, 3, generator=generator, dtype=torch.float64).to(dtype)


def loss_of(model, pairs):
    import torch

    inputs, targets = (torch.cat(parts) for parts in zip(*pairs))
    return torch.nn.functional.mse_loss(model(inputs), targets)


def train(model, optimizer, which, steps=6, passes=1, set_to_none=True, closure=False, clip=0.0):
    """Train on the batches of the ranks `which`."""
    import torch

    def backward(step):
        for one in range(passes):
            loss = loss_of(model, [batch(model, passes * step + one, rank) for rank in which])
            loss.backward()
        return loss

    def evaluate(step):
        optimizer.zero_grad(set_to_none=set_to_none)
        return backward(step)

    for step in range(steps):
        if closure:
            optimizer.step(lambda step=step: evaluate(step))
            continue
        evaluate(step)
        if clip:
            getattr(optimizer, "synchronize", int)()
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()


def assert_equal(model, make_model, make_optimizer, tolerance, **options):
    """Compare a model after training with that of one process, and with those of the other ranks."""
    import horovod.torch as hvd
    import torch

    alone = make_model()
    train(alone, make_optimizer(alone.parameters()), range(hvd.size()), **options)
    for one, other in zip(model.parameters(), alone.parameters()):
        assert (one - other).abs().max() <= tolerance, (one - other).abs().max()
    for every in zip(*hvd.allgather_object([one.detach() for one in model.parameters()])):
        assert all(torch.equal(every[0], one) for one in every), "the ranks' bits differ"


def check(make_model, make_optimizer, tolerance=1e-9, distributed=None, **options):
    import horovod.torch as hvd

    model = make_model()
    optimizer = make_optimizer(model.parameters())
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), backward_passes_per_step=options.get("passes", 1), **(distributed or {})
    )
    train(model, optimizer, [hvd.rank()], **options)
    assert_equal(model, make_model, make_optimizer, tolerance, **options)
    return model, optimizer


def optimizers():
    import torch

    return {
        "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        "Adam": lambda p: torch.optim.Adam(p, lr=0.01, foreach=False),
        "Adam foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
        "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
        "Adam fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
        "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, weight_decay=0.01),
        "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    }


@pytest.mark.row("p6")
@together
def test_optimizers():
    import torch

    for make in optimizers().values():
        for set_to_none in (True, False):
            check(mlp, make, set_to_none=set_to_none)
        check(lambda: mlp(torch.float32), make, tolerance=5e-6)


@pytest.mark.row("p8")
@together
def test_options():
    import horovod.torch as hvd

    momentum = optimizers()["momentum"]
    check(cnn, momentum)
    check(mlp, momentum, passes=3)
    check(mlp, momentum, passes=3, set_to_none=False)
    check(mlp, momentum, clip=0.1)
    for distributed in (
        {"groups": 2},
        {"groups": 100},
        {"gradient_predivide_factor": 2.0},
        {"op": hvd.Average, "sparse_as_dense": True},
    ):
        check(mlp, momentum, distributed=distributed)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        check(mlp, momentum, tolerance=0.05, distributed={"compression": compression})

    class Own:
        @staticmethod
        def compress(tensor):
            return tensor.float(), tensor.dtype

        @staticmethod
        def decompress(tensor, ctx):
            return tensor.to(ctx)

    check(mlp, momentum, tolerance=1e-5, distributed={"compression": Own})


@pytest.mark.row("p8")
@together
def test_groups_of_parameters():
    import horovod.torch as hvd
    import pytest

    model = mlp()
    make = optimizers()["momentum"]
    params = list(model.parameters())
    groups = [params[:1] + params[3:4], params[1:2]]
    optimizer = hvd.DistributedOptimizer(make(params), model.named_parameters(), groups=groups)
    train(model, optimizer, [hvd.rank()])
    assert_equal(model, mlp, make, 1e-9)
    for wrong in (-1, "two", 1.5, [params[:1], params[:1]], [["a"]]):
        with pytest.raises(ValueError, match="groups"):
            hvd.DistributedOptimizer(make(params), groups=wrong)
    with pytest.warns(DeprecationWarning, match="num_groups"):
        hvd.DistributedOptimizer(make(params), num_groups=2)


@pytest.mark.row("p9")
@together
def test_sparse_gradients():
    momentum = optimizers()["momentum"]
    sgd = optimizers()["SGD"]
    check(embedding, sgd)
    check(embedding, sgd, passes=3)
    check(embedding, momentum, distributed={"sparse_as_dense": True})
    check(lambda: embedding(sparse=False), momentum)


@pytest.mark.row("p8")
@together
def test_closures():
    import torch

    check(mlp, optimizers()["momentum"], closure=True)
    check(mlp, lambda p: torch.optim.LBFGS(p, lr=0.5, max_iter=5), closure=True, steps=3)
    check(mlp, lambda p: torch.optim.LBFGS(p, max_iter=5, line_search_fn="strong_wolfe"), closure=True, steps=3)


@pytest.mark.row("p10")
@together
def test_gradients_on_some_ranks_only():
    import horovod.torch as hvd
    import torch

    def make_model():
        torch.manual_seed(1)
        return torch.nn.ModuleDict({name: torch.nn.Linear(2, 2).double() for name in ("a", "b", "never")})

    def loss(model, rank, step):
        # Rank 1 uses the layer b in some steps only, rank 0 uses it never.
        inputs = torch.full((3, 2), rank + step + 1.0, dtype=torch.float64)
        output = model["a"](inputs)
        return (model["b"](output) if rank == 1 and step % 2 else output).square().mean()

    for make in (
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.01),
    ):
        for set_to_none in (True, False):
            model, alone = make_model(), make_model()
            optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())
            reference = make(alone.parameters())
            for step in range(6):
                optimizer.zero_grad(set_to_none=set_to_none)
                loss(model, hvd.rank(), step).backward()
                optimizer.step()
                reference.zero_grad(set_to_none=set_to_none)
                (sum(loss(alone, rank, step) for rank in range(hvd.size())) / hvd.size()).backward()
                reference.step()
            for one, other in zip(model.parameters(), alone.parameters()):
                assert torch.allclose(one, other, rtol=0, atol=1e-12)
            assert model["never"].weight.grad is None


@pytest.mark.row("p7")
@together
def test_overflow_on_one_rank():
    import horovod.torch as hvd
    import torch

    for make in (optimizers()["SGD"], optimizers()["Adam fused"]):
        for unscale in (False, True):
            model = mlp(torch.float32)
            optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())
            scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
            alone = mlp(torch.float32)
            plain = make(alone.parameters())
            for step in range(4):
                optimizer.zero_grad()
                before = [one.detach().clone() for one in model.parameters()]
                loss = loss_of(model, [batch(model, step, hvd.rank())])
                if step == 2 and hvd.rank() == 1:
                    loss = loss * float("inf")
                scaler.scale(loss).backward()
                if unscale:
                    scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
                same = all(torch.equal(one, old) for one, old in zip(model.parameters(), before))
                assert same == (step == 2), step
                if step != 2:
                    plain.zero_grad()
                    loss_of(alone, [batch(alone, step, rank) for rank in range(hvd.size())]).backward()
                    plain.step()
            assert scaler.get_scale() == 4.0
            for one, other in zip(model.parameters(), alone.parameters()):
                assert torch.allclose(one, other, rtol=0, atol=5e-6)
            every = hvd.allgather_object([one.detach() for one in model.parameters()])
            assert all(torch.equal(one, other) for one, other in zip(every[0], every[-1]))


@pytest.mark.row("p15")
@together
def test_compiled():
    import horovod.torch as hvd
    import torch

    make = optimizers()["momentum"]
    model = mlp()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())
    for step in range(6):
        optimizer.zero_grad()
        inputs, targets = batch(model, step, hvd.rank())
        torch.nn.functional.mse_loss(compiled(inputs), targets).backward()
        optimizer.step()
    assert_equal(model, mlp, make, 1e-9)

    model = mlp()
    optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())

    @torch.compile(backend="aot_eager")
    def whole(inputs, targets):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    for step in range(6):
        whole(*batch(model, step, hvd.rank()))
    assert_equal(model, mlp, make, 1e-9)

    model = mlp()
    optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
        train(model, optimizer, [hvd.rank()])
    assert_equal(model, mlp, make, 1e-9)


@together
def test_copies():
    import copy
    import pickle

    import horovod.torch as hvd
    import torch

    make = optimizers()["momentum"]
    for copied in (copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))):
        model = mlp()
        optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), groups=2)
        train(model, optimizer, [hvd.rank()], steps=3)
        second, follower = copied((model, optimizer))
        assert type(follower).__name__ == "SGD"
        assert follower._parameter_names[next(second.parameters())] == "0.weight"
        del optimizer
        # Both go on, each on its own.
        train(second, follower, [hvd.rank()], steps=3)
        alone = mlp()
        plain = make(alone.parameters())
        for _ in range(2):
            train(alone, plain, range(hvd.size()), steps=3)
        for one, other in zip(second.parameters(), alone.parameters()):
            assert torch.allclose(one, other, rtol=0, atol=1e-9)


@together
def test_state_and_schedulers():
    import horovod.torch as hvd
    import torch

    def make(params):
        return torch.optim.SGD(params, lr=0.1, momentum=0.9)

    model, alone = mlp(), mlp()
    plain_inside = make(model.parameters())
    before = torch.optim.lr_scheduler.StepLR(plain_inside, 2)  # made before the optimizer is distributed
    optimizer = hvd.DistributedOptimizer(plain_inside, model.named_parameters())
    after = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    plain = make(alone.parameters())
    expected = [torch.optim.lr_scheduler.StepLR(plain, 2), torch.optim.lr_scheduler.ExponentialLR(plain, 0.9)]
    for _ in range(4):
        train(model, optimizer, [hvd.rank()], steps=1)
        before.step()
        after.step()
        train(alone, plain, range(hvd.size()), steps=1)
        for scheduler in expected:
            scheduler.step()
    assert optimizer.param_groups[0]["lr"] == plain.param_groups[0]["lr"]
    # On another model, by the dictionaries.
    second = mlp()
    second.load_state_dict(model.state_dict())
    other = hvd.DistributedOptimizer(make(second.parameters()), second.named_parameters())
    other.load_state_dict(optimizer.state_dict())
    assert [one.keys() for one in other.state_dict()["param_groups"]] == [
        one.keys() for one in plain.state_dict()["param_groups"]
    ]
    calls = []
    other.register_step_pre_hook(lambda *_: calls.append("before"))
    train(second, other, [hvd.rank()], steps=2)
    train(alone, plain, range(hvd.size()), steps=2)
    assert calls == ["before"] * 2
    for one, two in zip(second.parameters(), alone.parameters()):
        assert torch.allclose(one, two, rtol=0, atol=1e-9)
    hvd.broadcast_optimizer_state(other, root_rank=1)


@together
def test_parameters_that_come_later():
    import horovod.torch as hvd
    import torch

    def make_model():
        torch.manual_seed(2)
        return torch.nn.Sequential(*[torch.nn.Linear(6, 6).double() for _ in range(3)], torch.nn.Linear(6, 3).double())

    def run(model, wrap, which):
        model[0].requires_grad_(False)
        optimizer = wrap(torch.optim.SGD(model[:2].parameters(), lr=0.1))
        train(model, optimizer, which, steps=2)
        optimizer.add_param_group({"params": list(model[2:].parameters()), "lr": 0.05})
        train(model, optimizer, which, steps=2)
        model[0].requires_grad_(True)
        train(model, optimizer, which, steps=2)

    model, alone = make_model(), make_model()
    run(model, hvd.DistributedOptimizer, [hvd.rank()])
    run(alone, lambda optimizer: optimizer, range(hvd.size()))
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(one, other, rtol=0, atol=1e-9)


@together
def test_gradients_that_a_program_sets():
    import horovod.torch as hvd
    import torch

    param = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), op=hvd.Sum)
    for _ in range(3):
        param.grad = torch.full((3,), hvd.rank() + 1.0)
        optimizer.step()
    assert param.tolist() == [-3.0 * sum(range(1, hvd.size() + 1))] * 3
    # Of a sum under autograd.grad, which no hook sees.
    (gradient,) = torch.autograd.grad(param.sum(), param)
    param.grad = gradient
    optimizer.synchronize()
    assert param.grad.tolist() == [hvd.size()] * 3
    with optimizer.skip_synchronize():
        optimizer.step()


@together
def test_misuse():
    import horovod.torch as hvd
    import pytest
    import torch

    model = mlp()
    inputs = batch(model, 0, hvd.rank())
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    train(model, optimizer, [hvd.rank()], steps=1)
    optimizer.zero_grad()
    loss_of(model, [inputs]).backward()
    assert optimizer._allreduce_delay[model[0].weight] == 0
    with pytest.raises(AssertionError, match=r"before optimizer\.step\(\)"):
        optimizer.zero_grad()
    with pytest.raises(AssertionError, match="use_reentrant=False"):
        loss_of(model, [inputs]).backward()
    with pytest.raises(AssertionError, match="was changed after"):
        optimizer.synchronize()
    optimizer.zero_grad()
    with pytest.raises(ValueError, match="distributed already"):
        hvd.DistributedOptimizer(optimizer)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="lacks 5 of the optimizer's 6"):
        hvd.DistributedOptimizer(plain, [("first", next(model.parameters()))])
    with pytest.raises(ValueError, match="a name twice: a"):
        hvd.DistributedOptimizer(plain, [("a", one) for one in model.parameters()])
    with pytest.raises(ValueError, match=r"model\.named_parameters"):
        hvd.DistributedOptimizer(plain, model.parameters())
    with pytest.raises(ValueError, match=r"hvd\.Average"):
        hvd.DistributedOptimizer(plain, op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="give 1 or more"):
        hvd.DistributedOptimizer(plain, backward_passes_per_step=0)
    with pytest.raises(ValueError, match=r"give a torch\.optim\.Optimizer"):
        hvd.DistributedOptimizer(model)
    other = hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(2 + hvd.rank()))], lr=0.1))
    with pytest.raises(ValueError, match="the ranks' parameters differ: this rank has 1"):
        other.step()


@together
def test_adasum():
    import horovod.torch as hvd
    import torch

    def model_and_plain():
        model = mlp()
        return model, torch.optim.Adam(model.parameters(), lr=0.01)

    model, plain = model_and_plain()
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), op=hvd.Adasum)
    models = [model_and_plain() for _ in range(hvd.size())]
    for _ in range(3):
        train(model, optimizer, [hvd.rank()], steps=1)
        starts = [[one.detach().clone() for one in one_model.parameters()] for one_model, _ in models]
        for rank, (one_model, one) in enumerate(models):
            train(one_model, one, [rank], steps=1)
        for i, every in enumerate(zip(*(one_model.parameters() for one_model, _ in models))):
            own = every[hvd.rank()].detach() - starts[0][i]
            combined = hvd.allreduce(own, op=hvd.Adasum)
            for one in every:
                one.data.copy_(starts[0][i] + combined)
    for one, other in zip(model.parameters(), models[0][0].parameters()):
        assert torch.allclose(one, other, rtol=0, atol=1e-9)


@pytest.mark.row("p14")
@together
def test_join_with_uneven_batches():
    import horovod.torch as hvd
    import torch

    model, alone = mlp(), mlp()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    plain = torch.optim.SGD(alone.parameters(), lr=0.1)
    steps = 3
    for step in range(steps if hvd.rank() == 0 else 0):  # the other rank has no batch at all
        optimizer.zero_grad()
        loss_of(model, [batch(model, step, 0)]).backward()
        optimizer.step()
    assert hvd.join() == 0
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for step in range(steps):
        plain.zero_grad()
        (loss_of(alone, [batch(alone, step, 0)]) / hvd.size()).backward()
        plain.step()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(one, other, rtol=0, atol=1e-9)


@ranks.on_ranks(3, sets=[[0, 2]], preloaded="torch")
def test_optimizer_of_a_process_set():
    import horovod.torch as hvd
    import torch

    pair = globals()["SETS"][0]
    model, alone = mlp(), mlp()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), process_set=pair)
    train(model, optimizer, [hvd.rank()])
    train(alone, torch.optim.SGD(alone.parameters(), lr=0.1), pair.ranks if pair.included() else [1])
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(one, other, rtol=0, atol=1e-9)


@ranks.on_ranks(2, preloaded="torch")
def test_another_start_of_the_engine():
    import horovod.torch as hvd
    import torch

    model, alone = mlp(), mlp()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    plain = torch.optim.SGD(alone.parameters(), lr=0.1)
    for _ in range(3):
        train(model, optimizer, [hvd.rank()], steps=2)
        train(alone, plain, range(hvd.size()), steps=2)
        hvd.shutdown()
        hvd.init()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(one, other, rtol=0, atol=1e-9)


@ranks.on_ranks(2, preloaded="torch")
def test_a_rank_is_lost():
    import os

    import horovod.torch as hvd
    import torch

    model = mlp()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    train(model, optimizer, [hvd.rank()], steps=2)
    if hvd.rank() == 1:
        os._exit(0)
    with pytest.raises(hvd.HorovodInternalError, match="rank 1"):
        train(model, optimizer, [hvd.rank()], steps=2)
    hvd.shutdown()


@together
def test_gradients_that_are_being_reduced_must_not_be_changed():
    import horovod.torch as hvd
    import torch

    hvd.init()

    def clip(model):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)

    def replace(model):
        for parameter in model.parameters():
            parameter.grad = parameter.grad * 2

    for number, change in enumerate((clip, replace)):
        for compression in (hvd.Compression.none, hvd.Compression.fp16):
            model = mlp()
            names = [(f"{number}.{name}", parameter) for name, parameter in model.named_parameters()]
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer = hvd.DistributedOptimizer(optimizer, names, compression=compression)
            train(model, optimizer, [hvd.rank()], steps=1)
            optimizer.zero_grad()
            loss_of(model, [batch(model, 1, hvd.rank())]).backward()
            change(model)
            with pytest.raises(AssertionError, match=r"optimizer\.synchronize\(\) before you clip"):
                optimizer.step()
            optimizer.zero_grad()
            loss_of(model, [batch(model, 2, hvd.rank())]).backward()
            optimizer.synchronize()
            change(model)
            optimizer.step()
            hvd.check_in_sync(model)
