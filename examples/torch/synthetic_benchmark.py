# SPDX-License-Identifier: Apache-2.0
"""
Images per second of a residual network on made-up data.

    horovodrun -np 2 examples/torch/synthetic_benchmark.py --batch 8
"""

from __future__ import annotations

import argparse
import statistics
import time

import horovod.torch as hvd
import torch


class Block(torch.nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path = torch.nn.Sequential(
            torch.nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            torch.nn.BatchNorm2d(outputs),
            torch.nn.ReLU(),
            torch.nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            torch.nn.BatchNorm2d(outputs),
        )
        self.shortcut = torch.nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Add both."""
        return torch.relu(self.path(images) + self.shortcut(images))


def make_model(width: int) -> torch.nn.Module:
    """Return a network of four blocks."""
    blocks = [Block(3, width, 1)] + [Block(width << i, width << (i + 1), 2) for i in range(3)]
    return torch.nn.Sequential(
        *blocks, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8 * width, 100)
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--batch", type=int, default=16, help="images of a rank")
    parser.add_argument("--side", type=int, default=32, help="pixels")
    parser.add_argument("--width", type=int, default=32, help="channels of the first block")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    arguments = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    model = make_model(arguments.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    compression = hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression=compression)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    images = torch.randn(arguments.batch, 3, arguments.side, arguments.side)
    targets = torch.randint(0, 100, (arguments.batch,))

    seconds = []
    for step in range(arguments.steps + 2):
        start = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), targets).backward()
        optimizer.step()
        if step >= 2:  # the first ones set up
            seconds.append(time.perf_counter() - start)
    if hvd.rank() == 0:
        speed = arguments.batch * hvd.size() / statistics.median(seconds)
        print(f"{hvd.size()} ranks, {speed:.1f} images/s, median step {1000 * statistics.median(seconds):.1f} ms")


if __name__ == "__main__":
    main()
