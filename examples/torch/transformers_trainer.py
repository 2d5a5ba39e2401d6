# SPDX-License-Identifier: Apache-2.0
"""
The Trainer of Hugging Face over the backend "hvd": a small model of BERT's kind learns to find a word.

    torchrun --nproc-per-node 2 examples/torch/transformers_trainer.py

Start the backend before TrainingArguments are made: the Trainer takes the process group that is there, and would make
one over Gloo otherwise.
"""

from __future__ import annotations

import argparse
import tempfile

import torch
import torch.distributed as dist
import transformers

WORDS, LENGTH = 20, 8


class Sentences(torch.utils.data.Dataset):
    """Random sentences; the label says whether word 1 is in it."""

    def __init__(self, rows: int, seed: int) -> None:
        self.words = torch.randint(1, WORDS, (rows, LENGTH), generator=torch.Generator().manual_seed(seed))
        self.words[::2, 3] = 1

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        words = self.words[row]
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": (words == 1).any().long()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("hvd")  # torchrun says rank and size
    transformers.set_seed(0)
    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = transformers.Trainer(
            model=transformers.BertForSequenceClassification(config),
            args=transformers.TrainingArguments(
                output_dir=folder,
                use_cpu=True,
                num_train_epochs=arguments.epochs,
                per_device_train_batch_size=16,
                learning_rate=0.005,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
                dataloader_pin_memory=False,
            ),
            train_dataset=Sentences(512, seed=1),
            eval_dataset=Sentences(128, seed=2),
        )
        trainer.train()
        loss = trainer.evaluate()["eval_loss"]
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks over {dist.get_backend()}, loss {loss:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
