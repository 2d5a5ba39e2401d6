# SPDX-License-Identifier: Apache-2.0
"""The samples of a rank in a job whose size changes, for a DataLoader."""

from __future__ import annotations

import torch

from horovod.common import elastic_sampler


class ElasticSampler(elastic_sampler.ElasticSampler, torch.utils.data.Sampler):
    """
    Deals the samples of a data set out to the ranks, and goes on after a change of the job with those that are left.

    Give it to a DataLoader and to a TorchState. Call `record_batch` after each batch, and `set_epoch` with the next
    number at the end of an epoch. If the samples cannot be shared equally, the first ones are taken twice, so that
    every rank has as many batches. With `exact`, nothing is taken twice; ranks that run out call `hvd.join`. With
    `global_batch`, a step of all ranks together has that many samples whatever the number of ranks is: make the
    DataLoader with `batch_size=sampler.batch_size` and multiply the loss by `sampler.weight`.

    >>> import torch
    >>> import horovod.torch as hvd
    >>> hvd.init()
    >>> sampler = hvd.elastic.ElasticSampler(range(5), shuffle=False)
    >>> batches = iter(torch.utils.data.DataLoader(range(5), batch_size=2, sampler=sampler))
    >>> next(batches)
    tensor([0, 1])
    >>> sampler.record_batch(0, 2)
    >>> sampler.reset()
    >>> list(sampler)
    [2, 3, 4]
    """
