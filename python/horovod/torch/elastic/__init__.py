# SPDX-License-Identifier: Apache-2.0
"""
Elastic training with PyTorch: a state of models, optimizers and samplers, and the loop that enters a function again.

>>> import torch
>>> import horovod.torch as hvd
>>> hvd.init()
>>> model = torch.nn.Linear(2, 1)
>>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
>>> optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
>>> @hvd.elastic.run
... def train(state):
...     while state.batch < 3:
...         optimizer.zero_grad()
...         model(torch.ones(4, 2)).sum().backward()
...         optimizer.step()
...         state.batch += 1
...         state.commit()
>>> state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0)
>>> train(state)
>>> state.batch
3
"""

from horovod.common.elastic import run
from horovod.common.elastic_resets import rescale_lr
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "HorovodInternalError", "HostsUpdatedInterrupt", "TorchState", "rescale_lr", "run"]
