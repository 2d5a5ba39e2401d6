# SPDX-License-Identifier: Apache-2.0
"""
A small transformer that learns to reverse sequences; each of its blocks is compiled on its own.

The hooks of a model that is compiled as a whole all run at the end of backward, so nothing overlaps. With a graph per
block the gradients of the last blocks are reduced while those of the first are computed.

    horovodrun -np 2 examples/torch/transformer.py --compile
"""

from __future__ import annotations

import argparse

import horovod.torch as hvd
import torch

SYMBOLS, LENGTH = 12, 8


class Transformer(torch.nn.Module):
    """Symbols in, symbols out."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.symbols = torch.nn.Embedding(SYMBOLS, width)
        self.places = torch.nn.Parameter(torch.zeros(LENGTH, width))
        layer = torch.nn.TransformerEncoderLayer
        self.blocks = torch.nn.ModuleList(
            layer(width, 4, 4 * width, dropout=0.0, batch_first=True) for _ in range(blocks)
        )
        self.out = torch.nn.Linear(width, SYMBOLS)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """Return scores of the symbols at each place."""
        values = self.symbols(sequences) + self.places
        for block in self.blocks:
            values = block(values)
        return self.out(values)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=32, help="sequences of a rank")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="compile each block")
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    arguments = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Transformer(arguments.width, arguments.blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    if arguments.compile:
        for block in model.blocks:
            block.compile(backend=arguments.backend)

    own = torch.Generator().manual_seed(1 + hvd.rank())
    for _ in range(arguments.steps):
        sequences = torch.randint(0, SYMBOLS, (arguments.batch, LENGTH), generator=own)
        optimizer.zero_grad()
        scores = model(sequences)
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), sequences.flip(1).flatten())
        loss.backward()
        optimizer.step()
    mean = hvd.allreduce(loss.detach(), name="loss").item()
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, loss {mean:.3f}")


if __name__ == "__main__":
    main()
