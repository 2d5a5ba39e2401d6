# SPDX-License-Identifier: Apache-2.0
"""
A small network on handwritten digits in PyTorch that goes on when ranks are lost or come.

Numbers mark the lines that make an ordinary program of horovod.torch elastic.

    horovodrun -np 3 --min-np 1 examples/torch/elastic_digits.py

Then kill any of the ranks: `kill -9 PID`.
"""

from __future__ import annotations

import argparse
import hashlib
import os

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits

TRAINING_ROWS = 1440


def main() -> None:
    """Train, and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    epochs = parser.parse_args().epochs
    hvd.init()
    torch.set_num_threads(1)
    features, labels = load_digits(return_X_y=True)
    images, targets = torch.tensor(features, dtype=torch.float32) / 16, torch.tensor(labels)
    dataset = torch.utils.data.TensorDataset(images[:TRAINING_ROWS], targets[:TRAINING_ROWS])

    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    # Every step has the same 96 rows, whatever the number of ranks is.
    sampler = hvd.elastic.ElasticSampler(dataset, seed=1, global_batch=96)
    # 1. The state, which is kept in memory and given to ranks that come.
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0)

    # 2. The part that is called again, with the state of the last commit, when ranks are lost or come.
    @hvd.elastic.run
    def train(state):
        if hvd.rank() == 0:
            print(f"{hvd.size()} ranks, rank 0 is process {os.getpid()}, epoch {state.epoch}", flush=True)
        loader = torch.utils.data.DataLoader(dataset, batch_size=sampler.batch_size, sampler=sampler)
        while state.epoch < epochs:
            for number, (batch, wanted) in enumerate(loader):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(batch), wanted)
                (sampler.weight * loss).backward()
                optimizer.step()
                sampler.record_batch(number, len(batch))
                if number % 5 == 4:
                    state.commit()  # 3. Keep the state.
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            state.commit()

    train(state)
    with torch.no_grad():
        accuracy = float((model(images[TRAINING_ROWS:]).argmax(1) == targets[TRAINING_ROWS:]).float().mean())
    digest = hashlib.sha256(b"".join(one.numpy().tobytes() for one in model.state_dict().values())).hexdigest()[:12]
    print(f"{hvd.size()} ranks, test accuracy {accuracy:.3f}, weights {digest}")


if __name__ == "__main__":
    main()
