# SPDX-License-Identifier: Apache-2.0
"""The state and the sampler of horovod.torch.elastic."""

import os
from unittest import mock

import changing_job
import pytest
import ranks


def together(function):
    return ranks.in_one_start(2, preloaded="torch")(function)


def alone(function):
    return ranks.in_one_start(1, preloaded="torch")(function)


def parts(hvd, passes=1):
    import torch

    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    options = {"named_parameters": model.named_parameters(), "backward_passes_per_step": passes}
    return model, hvd.DistributedOptimizer(plain, **options)


def step(model, optimizer, number, passes=1):
    import torch

    optimizer.zero_grad()
    for _ in range(passes):
        inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(number))
        model(inputs).square().sum().backward()
    optimizer.step()


def tensors(model, optimizer):
    import torch

    momenta = [one["momentum_buffer"] for one in optimizer.state_dict()["state"].values()]
    return [tensor.clone() for tensor in [*model.state_dict().values(), *momenta] if isinstance(tensor, torch.Tensor)]


def is_equal(one, other):
    return len(one) == len(other) and all(a.equal(b) for a, b in zip(one, other))


@together
def test_a_state_goes_through_a_change_with_the_same_bits_on_all_ranks():
    import horovod.torch as hvd

    for passes in (1, 2):
        results = []
        for fails in (False, True):
            model, optimizer = parts(hvd, passes)
            sampler = hvd.elastic.ElasticSampler(range(8))
            with changing_job.ChangingJob() as job:
                state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, batch=hvd.rank())

                @job.run
                def train(state):
                    while state.batch < 6:
                        step(state.model, state.optimizer, state.batch, passes)  # noqa: B023
                        state.batch += 1
                        state.sampler.record_batch(0, 1)
                        if fails and state.batch == 3 and job.formed == 1:  # noqa: B023
                            model(__import__("torch").ones(5, 3)).sum().backward()  # noqa: B023
                            job.end(RuntimeError("backward failed"))
                        if state.batch % 2 == 0:
                            state.commit()

                train(state)
            assert job.formed == 1 + fails
            assert sampler.processed_num == 8
            results.append(tensors(model, optimizer))
            hvd.check_in_sync(model)
        assert is_equal(*results)


@together
def test_a_wrapped_model_goes_through_a_change_in_mid_backward():
    import horovod.torch as hvd
    import torch

    results = []
    for fails in (False, True):
        torch.manual_seed(hvd.rank())
        with changing_job.ChangingJob() as job, mock.patch.dict(os.environ, HOROVOD_ELASTIC_VERIFY="1"):
            model = hvd.wrap(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0)

            def fail(_):
                if fails and state.batch == 3 and job.formed == 1:  # noqa: B023
                    job.end(RuntimeError("the gradient of the last layer has come"))

            model.module[0].weight.register_hook(fail)

            @job.run
            def train(state):
                while state.batch < 6:
                    step(state.model, state.optimizer, state.batch)
                    state.batch += 1
                    if state.batch % 2 == 0:
                        state.commit()

            train(state)
        assert job.formed == 1 + fails
        results.append(tensors(model, optimizer))
        hvd.check_in_sync(model)
    assert is_equal(*results)


@alone
def test_a_state_keeps_two_commits():
    import horovod.torch as hvd

    model, optimizer = parts(hvd)
    sampler = hvd.elastic.ElasticSampler(range(10), shuffle=False)
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)
    kept = []
    for number in range(3):
        step(model, optimizer, number)
        sampler.record_batch(number, 2)
        state.epoch += 1
        state.commit()
        kept.append(tensors(model, optimizer))
    step(model, optimizer, 3)
    assert state._go_back_to(2)
    assert is_equal(tensors(model, optimizer), kept[1])
    assert (state.epoch, sampler.processed_num, list(sampler)) == (2, 4, [4, 5, 6, 7, 8, 9])
    step(model, optimizer, 3)
    state.restore()
    assert is_equal(tensors(model, optimizer), kept[1])


@alone
def test_handlers_of_programs():
    import horovod.torch as hvd
    from horovod.torch.elastic import state as module

    class Box:
        def __init__(self, value):
            self.value = value

    class BoxHandler(module.StateHandler):
        def save(self):
            self.kept = self.value.value

        def restore(self):
            self.value.value = self.kept

        def sync(self):
            self.value.value = hvd.broadcast_object(self.value.value)

    before = module.get_handler_registry()
    module.set_handler_registry([(Box, BoxHandler), *before])
    box = Box(1)
    state = hvd.elastic.TorchState(box=box)
    module.set_handler_registry(before)
    state.commit()
    box.value = 2
    state.restore()
    assert state.box.value == 1
    state.box = Box(5)
    assert state.box.value == 5
    assert not state._go_back_to(1)
    state.sync()


@alone
def test_arguments():
    import horovod.torch as hvd

    with pytest.raises(TypeError, match="model=3 is neither a Module nor an Optimizer"):
        hvd.elastic.TorchState(model=3)
    with pytest.raises(TypeError, match="has no length"):
        hvd.elastic.ElasticSampler(iter([1]))
    with pytest.raises(AttributeError, match="TorchState has no attribute 'other'"):
        hvd.elastic.TorchState(batch=0).other  # noqa: B018


@alone
def test_a_sampler_deals_out_what_is_left():
    import horovod.torch as hvd
    import torch

    sampler = hvd.elastic.ElasticSampler(range(11), seed=4)
    loader = torch.utils.data.DataLoader(range(11), batch_size=4, sampler=sampler)
    first = next(iter(loader)).tolist()
    sampler.record_batch(0, 4)
    assert sampler.state_dict() == {"epoch": 0, "processed_num": 4}
    sampler.reset()
    assert sorted([*first, *sampler]) == list(range(11))
    assert (len(sampler), sampler.num_samples, sampler.total_size, sampler.num_replicas) == (7, 7, 7, 1)
    sampler.set_epoch(1)
    assert len(sampler) == 11
    assert list(sampler)[:4] != first


@together
def test_a_rank_with_another_model_is_told():
    import horovod.torch as hvd
    import torch

    state = hvd.elastic.TorchState(torch.nn.Linear(2 + hvd.rank(), 1))
    with pytest.raises((ValueError, hvd.HorovodInternalError)) as caught:
        state.sync()
    if hvd.rank() == 1:
        assert "variable 1 is 'weight', float32 [1, 3], and 'weight', float32 [1, 2], on rank 0" in str(caught.value)


@together
def test_a_global_batch_does_not_depend_on_the_number_of_ranks():
    """Ranks that take 4 and 3 samples of 7, in two passes each, step as one process does with all of them."""
    import horovod.torch as hvd
    import torch

    inputs = torch.randn(21, 3, generator=torch.Generator().manual_seed(1))
    dataset = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    results = []
    for alone in (False, True):
        model = torch.nn.Linear(3, 1)
        torch.nn.init.ones_(model.weight)
        torch.nn.init.zeros_(model.bias)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sampler = hvd.elastic.ElasticSampler(dataset, seed=3, global_batch=7)
        weight, size = sampler.weight, sampler.batch_size
        if alone:
            order = hvd.allgather_object(list(sampler))
            steps = [order[0][4 * n : 4 * n + 4] + order[1][3 * n : 3 * n + 3] for n in range(3)]
            loader, weight = torch.utils.data.DataLoader(dataset, batch_sampler=steps), 1.0
        else:
            optimizer = hvd.DistributedOptimizer(
                optimizer, named_parameters=model.named_parameters(), backward_passes_per_step=2, op=hvd.Sum
            )
            loader = torch.utils.data.DataLoader(dataset, batch_size=size, sampler=sampler)
            weight /= hvd.size()
        for features, targets in loader:
            optimizer.zero_grad()
            for x, y in zip(features.chunk(2), targets.chunk(2)):
                loss = torch.nn.functional.mse_loss(model(x), y, reduction="sum") / len(features)
                (weight * loss).backward()
            optimizer.step()
        results.append(torch.cat([one.detach().flatten() for one in model.parameters()]))
    assert torch.allclose(*results, rtol=0, atol=1e-6)


@alone
def test_names_and_signatures_are_those_of_horovod():
    import horovod.torch as hvd
    import test_elastic_api
    from horovod.torch.elastic import sampler, state

    handler = {"save": "self", "restore": "self", "sync": "self", "set_value": "self value"}
    test_elastic_api.check(
        hvd.elastic,
        {
            "TorchState": "model=None optimizer=None **kwargs",
            "ElasticSampler.set_epoch": "self epoch",
            "ElasticSampler.record_batch": "self batch_idx batch_size",
            "ElasticSampler.reset": "self",
            "ElasticSampler.state_dict": "self",
            "ElasticSampler.load_state_dict": "self state_dict",
            **test_elastic_api.ERRORS,
            **{f"state.StateHandler.{name}": signature for name, signature in handler.items()},
            "state.get_handler_registry": "",
            "state.set_handler_registry": "registry",
        },
    )
    assert test_elastic_api.signature_of(hvd.elastic.ElasticSampler).startswith("dataset shuffle=True seed=0")
    assert sampler.ElasticSampler is hvd.elastic.ElasticSampler
    assert {state.ModelStateHandler, state.OptimizerStateHandler, state.SamplerStateHandler} == {
        one for _, one in state.get_handler_registry()
    }
    found = hvd.elastic.ElasticSampler(range(4))
    names = ("processed_num", "remaining_indices", "num_samples", "total_size", "num_replicas", "rank")
    assert [getattr(found, name) for name in names] == [0, found.remaining_indices, 4, 4, 1, 0]
    assert len(found.remaining_indices) == 4


def test_the_example_survives_the_loss_of_rank_0():
    import test_elastic_programs

    assert test_elastic_programs.survives("torch/elastic_digits.py", 2) > 0.7
