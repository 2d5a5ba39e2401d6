# SPDX-License-Identifier: Apache-2.0
"""
A small convolutional network on real handwritten digits, data-parallel in PyTorch.

    python examples/torch/digits.py               # one process
    horovodrun -np 2 examples/torch/digits.py     # two
"""

from __future__ import annotations

import argparse

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TRAINING_ROWS = 1437


def load() -> tuple[TensorDataset, TensorDataset]:
    """Return digits for training and for testing."""
    features, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(features, dtype=torch.float32).view(-1, 1, 8, 8)[order] / 16
    targets = torch.tensor(labels)[order]
    training = TensorDataset(images[:TRAINING_ROWS], targets[:TRAINING_ROWS])
    return training, TensorDataset(images[TRAINING_ROWS:], targets[TRAINING_ROWS:])


def make_model() -> torch.nn.Module:
    """Return the network."""
    conv, relu = torch.nn.Conv2d, torch.nn.ReLU
    layers = [conv(1, 16, 3, padding=1), relu(), torch.nn.MaxPool2d(2), conv(16, 32, 3, padding=1), relu()]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(512, 10))


def accuracy(model: torch.nn.Module, dataset: TensorDataset) -> float:
    """Return the share of right answers; each rank looks at its own rows of the test."""
    images, targets = (tensor[hvd.rank() :: hvd.size()] for tensor in dataset.tensors)
    with torch.no_grad():
        right = (model(images).argmax(1) == targets).sum()
    counts = hvd.allreduce(torch.tensor([float(right), float(len(targets))]), op=hvd.Sum, name="accuracy")
    return float(counts[0] / counts[1])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32, help="rows of a rank")
    arguments = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    training, test = load()
    sampler = DistributedSampler(training, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(training, batch_size=arguments.batch, sampler=sampler)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        for images, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), targets).backward()
            optimizer.step()
    found = accuracy(model, test)
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, test accuracy {found:.3f}")


if __name__ == "__main__":
    main()
