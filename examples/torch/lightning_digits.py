# SPDX-License-Identifier: Apache-2.0
"""
Handwritten digits with PyTorch Lightning and the strategy "hvd".

    horovodrun -np 2 examples/torch/lightning_digits.py --devices 2
    torchrun --nproc-per-node 2 examples/torch/lightning_digits.py --devices 2
"""

from __future__ import annotations

import argparse

import horovod.torch.lightning  # noqa: F401  (the strategy "hvd")
import pytorch_lightning as lightning
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class Digits(lightning.LightningModule):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(images), labels)

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> None:
        """Log the accuracy, averaged over the ranks."""
        images, labels = batch
        right = (self.layers(images).argmax(1) == labels).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=0.005)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--devices", type=int, default=1, help="ranks that were started")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    features, labels = load_digits(return_X_y=True)
    rows = TensorDataset(torch.tensor(features / 16, dtype=torch.float32), torch.tensor(labels))
    training, testing = torch.utils.data.random_split(rows, [1437, 360], torch.Generator().manual_seed(0))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=arguments.devices,
        strategy="hvd",
        max_epochs=arguments.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Digits(), DataLoader(training, batch_size=32, shuffle=True), DataLoader(testing, batch_size=90))
    if trainer.is_global_zero:
        print(f"{trainer.world_size} ranks, test accuracy {float(trainer.callback_metrics['accuracy']):.3f}")


if __name__ == "__main__":
    main()
