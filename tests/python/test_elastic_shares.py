# SPDX-License-Identifier: Apache-2.0
"""Samples of an epoch among ranks whose number changes: each is processed once."""

import random
from unittest import mock

import horovod.numpy as hvd
import numpy as np
import pytest
from horovod.common import elastic_sampler
from horovod.common.elastic_sampler import ElasticSampler
from horovod.common.shares import Shares, part_of, share_of, share_of_global_batches, weight_of


def deal(shares, epoch, processed, size, exact):
    remaining = shares.remaining(epoch, processed)
    return remaining, [share_of(remaining, rank, size, exact) for rank in range(size)]


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_sample_is_processed_once_whatever_the_sizes_are(shuffle):
    """5,000 runs: batches, commits after some of them, and changes of the size that take the ranks to the commit."""
    draws = random.Random(7)
    for _ in range(2500):
        count, batch = draws.randint(1, 60), draws.randint(1, 5)
        shares = Shares(count, shuffle, draws.randint(0, 99))
        epoch, processed, done = draws.randint(0, 3), 0, []
        while processed < count:
            _, own = deal(shares, epoch, processed, draws.randint(1, 8), exact=True)
            uncommitted: list[int] = []
            for first in range(0, max(map(len, own)), batch):
                uncommitted += [one for share in own for one in share[first : first + batch]]
                if draws.random() < 0.5:  # a commit
                    done += uncommitted
                    processed, uncommitted = len(done), []
                if draws.random() < 0.3:  # a change; what is not committed is lost
                    break
            else:
                done += uncommitted
                processed = len(done)
        assert sorted(done) == list(range(count))


def test_shares_are_padded_from_the_beginning():
    for count in range(12):
        for size in range(1, 9):
            remaining, own = deal(Shares(count, True, 1), 0, 0, size, exact=False)
            assert len({len(share) for share in own}) == 1
            total = len(own[0]) * size
            padded = (remaining * size)[:total]
            assert own == [padded[rank::size] for rank in range(size)]


def test_the_order_is_that_of_seed_and_epoch():
    orders = [tuple(Shares(20, True, seed).remaining(epoch, 0)) for seed in range(3) for epoch in range(3)]
    assert len(set(orders)) == 9
    assert Shares(20, True, 2).remaining(1, 5) == list(Shares(20, True, 2).remaining(1, 0))[5:]


def test_a_step_has_the_same_global_batch_whatever_the_sizes_are():
    draws = random.Random(3)
    for _ in range(2000):
        count, size = draws.randint(1, 60), draws.randint(1, 8)
        batch = draws.randint(size, 24)
        shares = Shares(count, True, draws.randint(0, 99))
        order = shares.remaining(0, 0)
        processed = draws.randrange(0, count, batch)
        own = [share_of_global_batches(order, processed, rank, size, batch) for rank in range(size)]
        parts = [part_of(batch, rank, size) for rank in range(size)]
        for step in range(-(-(count - processed) // batch)):
            together = [one for share, part in zip(own, parts) for one in share[step * part : (step + 1) * part]]
            first = processed + step * batch
            assert sorted(together) == sorted((order * (batch + 1))[first : first + batch])
        assert sum(weight_of(batch, rank, size) for rank in range(size)) == pytest.approx(size)


def gradient_of(weights, rows):
    return (rows @ weights - rows.sum(axis=1)) @ rows / len(rows)


def test_the_loss_does_not_depend_on_who_is_lost(engine, monkeypatch):
    """Sizes 4, 3, 2 and 4 in 200 steps, with roll-backs, and weights as of a job that kept its size."""
    rows = np.random.default_rng(1).normal(size=(101, 5))
    results = []
    for sizes in ([4], [4, 3, 2, 4]):
        weights, losses = np.zeros(5), []
        sampler = ElasticSampler(rows, seed=2, global_batch=10)
        kept = (weights, sampler.state_dict(), 0)
        for life, size in enumerate(sizes):
            weights, place, done = kept
            sampler.load_state_dict(place)
            del losses[done:]
            last = 200 if life == len(sizes) - 1 else 50 * (life + 1) + 3  # three steps are lost
            while len(losses) < last:
                gradients = []
                for rank in range(size):
                    basics = mock.Mock(rank=lambda rank=rank: rank, size=lambda size=size: size)
                    monkeypatch.setattr(elastic_sampler, "_basics", basics)
                    sampler.reset()
                    part = list(sampler)[: sampler.batch_size]
                    gradients.append(sampler.weight * gradient_of(weights, rows[part]))
                weights = weights - 0.05 * np.mean(gradients, axis=0)
                losses.append(float(np.square(rows @ (weights - 1)).mean()))
                sampler.record_batch(0, 0)
                if sampler.processed_num == len(rows):
                    sampler.set_epoch(sampler.epoch + 1)
                if len(losses) % 50 == 0:
                    kept = (weights, sampler.state_dict(), len(losses))
        results.append(losses)
    assert len(results[0]) == len(results[1]) == 200
    assert results[1] == pytest.approx(results[0], rel=0, abs=1e-9)


def test_a_sampler_is_kept_by_its_place(engine):
    sampler = hvd.elastic.ElasticSampler(range(10), seed=4)
    state = hvd.elastic.NumpyState(sampler=sampler, step=0)
    order = list(sampler)
    sampler.record_batch(0, 4)
    state.commit()
    sampler.record_batch(1, 4)
    state.restore()
    assert state.sampler is sampler
    assert (sampler.processed_num, list(sampler)) == (4, order[4:])
    sampler.set_epoch(1)
    state.sync()
    state.on_reset()
    assert (sampler.epoch, sampler.processed_num) == (1, 0)
    assert list(sampler) != order


def test_arguments_of_a_sampler_are_checked(engine):
    with pytest.raises(TypeError, match="dataset=3 has no length"):
        ElasticSampler(3)
    with pytest.raises(ValueError, match="global_batch=0 is too small"):
        ElasticSampler([1], global_batch=0)
    with pytest.raises(ValueError, match="exact=True and global_batch"):
        ElasticSampler([1], exact=True, global_batch=2)
    with pytest.raises(ValueError, match="global_batch=2 is less than the 3 ranks"):
        part_of(2, 0, 3)
    with pytest.raises(ValueError, match="batch_size is known only for a sampler with global_batch="):
        ElasticSampler([1]).batch_size  # noqa: B018
